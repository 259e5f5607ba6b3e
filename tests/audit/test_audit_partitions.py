"""An audit of a log in files: its result depends neither on the parts nor on where they are worked on."""

from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from sklearn.linear_model import LogisticRegression

import caliope as cal
from caliope._audit import _parts
from caliope.behaviour import NeighbourPolicy, TabularFrequencies
from caliope.checks import A112, A113
from caliope.domains import ward
from caliope.engines import Dask, Local, PartitionError
from caliope.io import open_partitions
from caliope.values import TabularRegressor
from caliope.values._defaults import AveragedValues

EARLIER, PRACTICE = cal.TabularPolicy(ward.EARLIER), cal.TabularPolicy(ward.PRACTICE)
COLUMNS = {"episode": "id", "time": "t", "action": "a", "reward": "r", "states": ["x"], "n_actions": 3}
OPTIONS = {"regressor": TabularRegressor(), "n_draws": 50, "rng": 0, "progress": False}


@pytest.fixture(scope="module")
def log():
    data = ward.simulate(400, rng=0)  # 3,069 decisions
    taken = cal.action_probabilities(PRACTICE, data.states, 3)[np.arange(data.n_steps), data.actions]
    return pl.DataFrame(
        {
            "id": data.ids[data.layout.owner] + 1000,
            "t": data.layout.time,
            "x": data.states[:, 0],
            "a": data.actions,
            "r": data.rewards,
            "p": taken,
            "site": data.layout.owner % 40,
        }
    )


def open_log(frame, folder, pieces, **options):
    folder.mkdir(exist_ok=True)
    ends = np.linspace(0, len(frame), pieces + 1).astype(int)
    for i, (a, b) in enumerate(pairwise(ends)):
        frame[a:b].write_parquet(folder / f"{i}.parquet")
    return open_partitions(folder, **(COLUMNS | {"sample": 1000} | options))


def audit(source, engine=None, target=EARLIER, models=None, **options):
    engine = Local(1) if engine is None else engine
    models = {"frequencies": TabularFrequencies()} if models is None else models
    return cal.audit(source, target, models, engine=engine, **(OPTIONS | options))


def numbers(found):
    """All that an audit says, but what it took."""
    said = {k: x for k, x in found.to_dict().items() if k != "stages"}
    said["behaviour"] = {k: x for k, x in said["behaviour"].items() if k != "seconds"}
    return str(found), said


def flat(x, path=""):
    """Every number and text of nested results, by where it is."""
    if isinstance(x, dict | list | tuple):
        for k, part in x.items() if isinstance(x, dict) else enumerate(x):
            yield from flat(part, f"{path}/{k}")
    else:
        yield path, x


def assert_same(one, other):
    """To the word, and numbers to 1e-10; sums of another shape round otherwise."""
    assert one[0] == other[0]
    ours, theirs = (dict(flat(x[1])) for x in (one, other))
    assert ours.keys() == theirs.keys()
    for path, value in ours.items():
        assert theirs[path] == (
            pytest.approx(value, rel=1e-10, abs=1e-10) if isinstance(value, float) else value
        ), path


@pytest.fixture(scope="module")
def one_part(log, tmp_path_factory):
    return numbers(audit(open_log(log, tmp_path_factory.mktemp("one"), 1)))


@pytest.mark.parametrize(
    ("pieces", "rows", "engine"),
    [
        (5, 100_000, Local(1)),
        pytest.param(2, 400, Local(2), marks=pytest.mark.slow),
        pytest.param(3, 100_000, Local(4), marks=pytest.mark.slow),
        pytest.param(4, 100_000, Dask(workers=1), marks=pytest.mark.slow),
        pytest.param(2, 400, Dask(workers=2), marks=pytest.mark.slow),
        pytest.param(6, 100_000, Dask(workers=4), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_the_result_is_the_same_to_the_word(log, one_part, tmp_path, pieces, rows, engine):
    assert_same(numbers(audit(open_log(log, tmp_path, pieces, rows=rows), engine)), one_part)


def without_places(reach):
    """All but where in the file a trajectory stands, which is another place in another order."""
    return {path: x for path, x in flat(reach) if not path.endswith("/numbers/trajectory")}


@pytest.mark.slow
def test_the_order_of_the_rows_does_not_matter(log, one_part, tmp_path):
    mixed = log.sample(fraction=1.0, shuffle=True, seed=3)
    text, found = numbers(audit(open_log(mixed, tmp_path, 3)))
    assert text == one_part[0]
    for name in ("value", "interval"):
        assert found["headline"][name] == one_part[1]["headline"][name]
    assert without_places(found["reach"]) == without_places(one_part[1]["reach"])


@pytest.mark.slow
def test_a_log_no_longer_than_its_sample_is_audited_as_one_table_is(log, tmp_path):
    source = open_log(log, tmp_path, 3, sample=10_000)
    plain = cal.audit(
        cal.read_table(log, **COLUMNS), EARLIER, {"frequencies": TabularFrequencies()}, **OPTIONS
    )
    assert_same(numbers(audit(source)), numbers(plain))


@pytest.mark.slow
def test_with_recorded_probabilities_weights_are_those_of_the_whole_table(log, tmp_path):
    found = audit(open_log(log, tmp_path, 4, rows=300, keep=["p"]), logged="p")
    whole = cal.read_table(log, **COLUMNS, keep=["p"])
    e = cal.gather(whole, EARLIER, whole["p"])
    for estimator in (cal.monte_carlo, cal.wis, cal.step_wis, cal.phwis):
        assert found.table[estimator.__name__].value == pytest.approx(float(estimator(e)), abs=1e-10)
    capped = cal.weights.clip_weights(e)
    assert found.table["wis_capped"].value == pytest.approx(float(cal.wis(capped)), abs=1e-10)
    assert found.headline.n == len(whole) == found.settings.n_trajectories
    assert found.settings.n_steps == whole.n_steps


@pytest.mark.slow
def test_values_and_behaviour_are_predicted_as_one_table_would_be(log, tmp_path):
    """With models that cannot differ between folds: every number of the table is that of the plain audit."""
    # Uniform practice whatever it is fitted on, and values that are 0: no reward in the sample's regression.
    frame = log.with_columns(pl.col("r") * 1.0)
    source = open_log(frame, tmp_path, 3)
    found = audit(source, models={"uniform": Uniform()}, regressor=Zero())
    plain = cal.audit(
        cal.read_table(frame, **COLUMNS), EARLIER, {"uniform": Uniform()}, **(OPTIONS | {"regressor": Zero()})
    )
    for row in found.table:
        if "marginalised" not in row.name:
            assert row.value == pytest.approx(plain.table[row.name].value, abs=1e-10), row.name
            assert row.interval.low == pytest.approx(plain.table[row.name].interval.low, abs=1e-10)
            assert row.interval.high == pytest.approx(plain.table[row.name].interval.high, abs=1e-10)


class Uniform(TabularFrequencies):
    """A third each, whatever was fitted."""

    def predict_proba(self, X):
        return np.full((len(X), 3), 1 / 3)


class Zero(TabularRegressor):
    """0, whatever was fitted."""

    def predict(self, X):
        return np.zeros(len(X))


@pytest.mark.slow
def test_what_comes_from_a_sample_is_said(log, tmp_path):
    found = audit(open_log(log, tmp_path, 2))
    said = next(f for f in found.findings if f.check == A113)
    assert said.facts["total"] == len(log)
    assert 900 < said.facts["steps"] < 1100
    # Models were fitted on all of the sample: a third of the log, which is more than a quarter.
    assert not [f for f in found.findings if f.check == A112]
    assert len(found.data) == said.facts["n"] < found.headline.n == 400


@pytest.mark.slow
def test_clusters_stay_together(log, tmp_path):
    one = numbers(audit(open_log(log, tmp_path / "a", 1, cluster="site")))
    assert_same(numbers(audit(open_log(log, tmp_path / "b", 5, cluster="site"))), one)
    assert "40" in str(one[1]["settings"]["clusters"])


@pytest.mark.slow
def test_a_function_of_the_log_is_a_target(log, tmp_path):
    source = open_log(log, tmp_path, 3, keep=["x"])
    found = audit(source, target=lambda part: cal.action_probabilities(EARLIER, part["x"][:, None], 3))
    assert found.headline.value == pytest.approx(audit(source).headline.value, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    "regressor", [TabularRegressor(), None], ids=["own values", "values of the past too"]
)
def test_models_of_the_past_see_the_past_in_every_part(tmp_path, regressor):
    """Practice repeats its last action: the remedy adds the past, also where a part begins."""
    rng = np.random.default_rng(5)
    n, steps = 300, 8
    actions = np.zeros((n, steps), dtype=int)
    actions[:, 0] = rng.integers(0, 2, n)
    for t in range(1, steps):
        actions[:, t] = np.where(rng.random(n) < 0.85, actions[:, t - 1], 1 - actions[:, t - 1])
    frame = pl.DataFrame(
        {
            "id": np.repeat(np.arange(n), steps),
            "t": np.tile(np.arange(steps), n),
            "x": rng.normal(size=n * steps),
            "a": actions.ravel(),
            "r": rng.normal(size=n * steps) + actions.ravel(),
        }
    )
    models, options = {"logistic": LogisticRegression(max_iter=500)}, {"n_actions": 2}
    target = cal.UniformPolicy(2)
    asked = {"target": target, "models": models, "regressor": regressor}
    one = audit(open_log(frame, tmp_path / "a", 1, **options), **asked)
    several = audit(open_log(frame, tmp_path / "b", 4, rows=333, **options), **asked)
    assert "history" in one.comparison.recommended
    assert_same(numbers(several), numbers(one))


def outside_of(log, sampled, k=3):
    """Ids of some trajectories that are not in the sample of an audit."""
    inside = set(sampled.data.ids.tolist())
    return [x for x in log["id"].unique(maintain_order=True).to_list() if x not in inside][:k]


def change(log, ids, **columns):
    """The log with other values at the second step of some trajectories."""
    there = pl.col("id").is_in(ids) & (pl.col("t") == 1)
    return log.with_columns(
        pl.when(there).then(pl.lit(value)).otherwise(pl.col(name)).alias(name)
        for name, value in columns.items()
    )


WORDS = pl.col("a").replace_strict({0: "none", 1: "low", 2: "high"}, return_dtype=pl.String)


@pytest.mark.slow
@pytest.mark.parametrize("model", [TabularFrequencies(), LogisticRegression()], ids=["counts", "logistic"])
def test_an_action_that_only_the_rest_of_the_log_holds_does_not_end_the_audit(log, tmp_path, model):
    """No model of the sample knows it; a policy that never takes it is evaluated, one that does is not trusted."""
    models, plain = {"one": model}, open_log(log, tmp_path / "a", 1)
    odd = change(log, outside_of(log, audit(plain)), a=3)
    never = cal.TabularPolicy(np.column_stack([ward.EARLIER, np.zeros(len(ward.EARLIER))]))
    source = open_log(odd, tmp_path / "b", 2, n_actions=None)
    found = audit(source, target=never, models=models)
    (said,) = [x for x in found.findings if x.code == "B110"]
    assert (said.level, said.facts["zero"], said.facts["n"]) == ("note", 3, found.data.n_steps)
    without = audit(open_log(log, tmp_path / "c", 2, n_actions=4), target=never, models=models)
    assert abs(found.headline.value - without.headline.value) < 0.01
    taken = audit(source, target=cal.mix(cal.practice, cal.UniformPolicy(4), 0.5), models=models)
    assert taken.verdict == "do not trust"
    assert [x.level for x in taken.findings if x.code == "S101"] == ["issue"]


def test_probabilities_of_zero_are_replaced_whatever_was_taken():
    probs = np.array([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5], [1.0, 0.0, 0.0]])
    found = _parts.rule_out_nothing(probs, 97)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    np.testing.assert_allclose(found[2], [0.98, 0.01, 0.01])
    assert found[1].tolist() == probs[1].tolist()
    assert probs[0, 2] == 0


@pytest.mark.slow
def test_an_action_in_words_outside_the_sample_has_its_code(log, tmp_path):
    words = log.with_columns(WORDS.alias("a"))
    plain = audit(open_log(words, tmp_path / "a", 1, n_actions=None), target=cal.UniformPolicy(3))
    assert plain.data.action_names == ("high", "low", "none")
    odd = change(words, outside_of(words, plain), a="extra")
    found = audit(open_log(odd, tmp_path / "b", 2, n_actions=4), target=cal.practice)
    assert found.data.action_names == ("extra", "high", "low", "none")
    whole = cal.read_table(odd, **(COLUMNS | {"n_actions": 4}))
    assert whole.action_names == found.data.action_names
    assert found.headline.value == pytest.approx(
        float(cal.monte_carlo(cal.gather(whole, cal.practice, np.full((whole.n_steps, 4), 0.25))))
    )


@pytest.mark.slow
def test_copies_are_counted_in_the_whole_log(log, tmp_path):
    """A sample holds few trajectories together with their copies: here about a sixth of them."""
    twice = pl.concat([log, log.with_columns(pl.col("id") + 10_000)])
    found = audit(open_log(twice, tmp_path / "a", 2))
    (said,) = [x for x in found.findings if x.code == "L101"]
    extra = 800 - len(set(cal.read_table(twice, **COLUMNS).digests))  # some coincide by chance
    assert (said.level, said.facts["copies"], said.facts["n"]) == ("issue", extra, 800)
    assert found.verdict == "do not trust"
    assert f"{extra} of 800 trajectories" in said.message


@pytest.mark.slow
@pytest.mark.parametrize("what", ["gap", "not a number", "level"])
def test_what_only_the_rest_of_the_log_holds_in_a_state_has_a_place(log, tmp_path, what):
    log = log.with_columns(pl.when(pl.col("x") < 2).then(pl.lit("mild")).otherwise(pl.lit("hard")).alias("w"))
    states, odd_value = {
        "gap": (["x"], {"x": None}),
        "not a number": (["x"], {"x": float("nan")}),
        "level": (["x", "w"], {"w": "odd"}),
    }[what]
    plain = audit(open_log(log, tmp_path / "a", 1, states=states))
    odd = change(log, outside_of(log, plain), **odd_value)
    found = audit(open_log(odd, tmp_path / "b", 3, states=states))
    # In the sample the new features are 0, and three steps of 3,069 differ.
    assert found.headline.value == pytest.approx(plain.headline.value, abs=0.01)
    assert found.headline.n == 400
    name, text = ("w", "1 levels outside") if what == "level" else ("x", "3 gaps outside")
    assert text in found.settings.source[f"state {name!r}"]
    assert_same(numbers(audit(open_log(odd, tmp_path / "c", 1, states=states))), numbers(found))


@pytest.mark.parametrize(
    ("change_of", "options", "error", "says"),
    [
        ({"a": 999}, {"n_actions": None}, ValueError, "fewer than half of the actions 0 to 999 occur"),
        (
            {"a": -5},
            {"n_actions": None, "levels": 2},
            PartitionError,
            r"parquet .*1 of \d+ doses are negative",
        ),
    ],
    ids=["a code for something else", "a negative dose"],
)
def test_a_wrong_action_outside_the_sample_is_named_before_anything_is_fitted(
    log, tmp_path, change_of, options, error, says
):
    plain = audit(open_log(log, tmp_path / "a", 1))
    odd, told = change(log, outside_of(log, plain, 1), **change_of), []
    with pytest.raises(error, match=says):
        audit(open_log(odd, tmp_path / "b", 2, **options), progress=told.append)
    assert not any("fitting" in str(each) for each in told)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"target": np.full((3069, 3), 1 / 3)}, "a policy or a function of the log"),
        (
            {"target": None, "learn": LogisticRegression()},
            "learner",
        ),
        ({"target": cal.tilt(cal.practice, [1, 2, 1])}, "a tilt of practice needs the log in memory"),
        ({"by": np.zeros(3069)}, "strata"),
        ({"cluster": "site"}, "open_partitions"),
        ({"logged": np.ones(3069)}, "logged must be the name of a column"),
        ({"learnt_on": [1]}, "learnt_on must be 'no'"),
        ({"worst": 1e9}, "worst must not exceed"),
    ],
)
def test_what_needs_the_log_in_memory_is_refused(log, tmp_path, options, says):
    with pytest.raises((TypeError, ValueError), match=says):
        audit(open_log(log, tmp_path, 1), **options)


@pytest.mark.slow
@pytest.mark.parametrize("by_step", [False, True], ids=["rounds", "by step"])
@pytest.mark.parametrize("mixed", [False, True], ids=["whole", "a share"])
def test_values_of_actions_that_the_target_never_takes_change_nothing(
    log, tmp_path, monkeypatch, mixed, by_step
):
    """A policy that takes one action in each state needs the values of that and of the logged one: 2 of 6."""
    # Lengths are capped: values go backward in time; trees then, and the kernel otherwise.
    frame = log.filter(pl.col("t") < 5) if by_step else log
    source = open_log(frame, tmp_path, 2, n_actions=6)
    target = cal.TabularPolicy(np.eye(6)[np.arange(len(ward.EARLIER)) % 3])
    asked, seen = cal.mix(cal.practice, target, 0.3) if mixed else target, []
    predict = AveragedValues.predict
    monkeypatch.setattr(
        AveragedValues, "predict", lambda self, *given: seen.append(given[2]) or predict(self, *given)
    )
    few = audit(source, target=asked, regressor=None)
    assert all(x.sum(axis=1).max() == 2 for x in seen)
    monkeypatch.setattr(_parts, "_FEW", 0.0)
    every = audit(source, target=asked, regressor=None)
    assert seen[-1] is None
    assert_same(numbers(few), numbers(every))


@pytest.mark.slow
def test_models_of_a_sample_give_the_answer_of_models_of_all(tmp_path):
    """Fitted on 6,000 of 38,000 decisions, or on half of them: the difference is a part of the standard error."""
    data = ward.simulate(5000, rng=1)
    columns = {"id": data.ids[data.layout.owner], "t": data.layout.time, "x": data.states[:, 0]}
    frame = pl.DataFrame(columns | {"a": data.actions, "r": data.rewards})
    models, target = {"logistic": LogisticRegression()}, cal.mix(cal.practice, EARLIER, 0.5)
    plain = cal.audit(cal.read_table(frame, **COLUMNS), target, models, **OPTIONS)
    found = audit(open_log(frame, tmp_path, 3, sample=6000), target=target, models=models)
    for row, other in ((found.headline, plain.headline), (found.gain, plain.gain)):
        error = (other.interval.high - other.interval.low) / 3.92
        assert abs(row.value - other.value) < error
        width = (row.interval.high - row.interval.low) / (other.interval.high - other.interval.low)
        assert 0.8 < width < 1.25
    assert found.headline.n == plain.headline.n == 5000


@pytest.mark.slow
def test_what_a_kill_left_is_taken_over_by_another_number_of_workers(log, one_part, tmp_path):
    source, work = open_log(log, tmp_path / "log", 2, rows=400), tmp_path / "work"

    class Stopping(Local):
        """Stop after three weighed parts, as a kill would."""

        def run(self, task, items):
            for i, found in enumerate(super().run(task, items)):
                if type(task).__name__ == "WeighPart" and i == 3:
                    raise KeyboardInterrupt
                yield found

    with pytest.raises(KeyboardInterrupt):
        audit(source, Stopping(1), work=work)
    left = []

    class Counting(Local):
        def run(self, task, items):
            left.append((type(task).__name__, len(items)))
            return super().run(task, items)

    assert_same(numbers(audit(source, Counting(2), work=work)), one_part)
    weighed = dict(left)["WeighPart"]
    assert weighed == len(source.stretches) - 3


@pytest.mark.slow
def test_another_policy_with_the_same_decisions_on_the_sample_is_weighed_anew(log, tmp_path):
    """What is kept depends on the policy itself: it may differ where the sample does not show it."""
    source, work = open_log(log, tmp_path / "log", 2), tmp_path / "work"
    sampled = set(audit(source).data.ids.tolist())
    outside = [x for x in log["id"].unique(maintain_order=True).to_list() if x not in sampled]
    one, other = (Except(frozenset(ids)) for ids in ((), outside))
    first = audit(source, target=one, work=work)
    second = audit(source, target=other, work=work)
    assert second.headline.value != first.headline.value
    assert_same(numbers(second), numbers(audit(source, target=other)))


class Except:
    """The earlier policy, but for some trajectories the uniform one."""

    def __init__(self, ids):
        self.ids = ids

    def on(self, data):
        table = np.array(cal.action_probabilities(EARLIER, data.states, 3))
        table[np.isin(data.ids[data.layout.owner], list(self.ids))] = 1 / 3
        return table


@pytest.mark.slow
@pytest.mark.parametrize("odd", [0.0, 1.5, None])
def test_a_recorded_probability_outside_the_sample_is_checked_too(log, tmp_path, odd):
    source = open_log(log, tmp_path / "a", 2, keep=["p"])
    sampled = set(audit(source, logged="p").data.ids.tolist())
    first = next(x for x in log["id"].to_list() if x not in sampled)
    wrong = log.with_columns(pl.when(pl.col("id") == first).then(odd).otherwise(pl.col("p")).alias("p"))
    with pytest.raises(PartitionError, match=rf"0\.parquet.*logged probabilities.*trajectory {first}"):
        audit(open_log(wrong, tmp_path / "b", 2, keep=["p"]), logged="p")


def test_a_file_that_changes_between_two_passes_is_named(log, tmp_path):
    source = open_log(log, tmp_path, 3)

    class Changing(Local):
        """Write other rewards into a file before parts are weighed."""

        def run(self, task, items):
            if type(task).__name__ == "WeighPart":
                path = tmp_path / "1.parquet"
                pl.read_parquet(path).with_columns(pl.col("r") + 1).write_parquet(path)
            return super().run(task, items)

    with pytest.raises(PartitionError, match=r"1\.parquet .*was changed after it was looked at"):
        audit(source, Changing(1))


@pytest.mark.slow
def test_neighbours_that_are_equally_far_are_the_same_in_every_part(log, tmp_path):
    models = {"neighbours": NeighbourPolicy(20, shrinkage="cv")}
    one = numbers(audit(open_log(log, tmp_path / "a", 1), models=models))
    assert_same(numbers(audit(open_log(log, tmp_path / "b", 3, rows=250), models=models)), one)


@pytest.mark.slow
def test_policies_audited_on_one_preparation_get_what_each_would_get_alone(log, one_part, tmp_path):
    source, models = open_log(log, tmp_path, 3), {"frequencies": TabularFrequencies()}
    prepared = cal.prepare_audit(source, models, engine=Local(1), rng=0)
    options = {k: OPTIONS[k] for k in ("regressor", "n_draws")}
    assert_same(numbers(prepared.audit(EARLIER, **options)), one_part)
    with pytest.raises(TypeError, match="a policy or a function of the log"):
        prepared.audit(np.full((len(prepared.data.states), 3), 1 / 3))


@pytest.mark.slow
def test_several_policies_are_compared_on_all_trajectories(log, tmp_path):
    source = open_log(log, tmp_path, 3, keep=["p"])
    targets = {"earlier": EARLIER, "uniform": cal.UniformPolicy(3)}
    models = {"frequencies": TabularFrequencies()}
    found = cal.compare(source, targets, models, logged="p", engine=Local(1), **OPTIONS)
    alone = audit(source, target=targets["uniform"], logged="p")
    assert found.audits["uniform"].headline.value == pytest.approx(alone.headline.value, abs=1e-12)
    assert found.table["uniform"].difference.n == 400
    pair, gains = found.pairs.rows[0], [x.gain.value for x in found.audits.values()]
    assert (pair.n, pair.value) == (400, pytest.approx(gains[0] - gains[1], abs=1e-12))


def test_a_comparison_cannot_restrict_policies_in_parts(log, tmp_path):
    targets = {"earlier": EARLIER, "uniform": cal.UniformPolicy(3)}
    with pytest.raises(TypeError, match="restrict needs the log in memory"):
        cal.compare(open_log(log, tmp_path, 1), targets, restrict=True, **OPTIONS)


def test_an_engine_is_for_a_log_in_files(log):
    with pytest.raises(TypeError, match="this one is in memory"):
        cal.audit(cal.read_table(log, **COLUMNS), EARLIER, engine=Local(), rng=0)


@pytest.mark.slow
def test_a_second_start_takes_over_what_is_finished(log, one_part, tmp_path):
    source, calls = open_log(log, tmp_path / "log", 4), []

    class Counting(Local):
        def run(self, task, items):
            calls.append((type(task).__name__, len(items)))
            return super().run(task, items)

    first, again = (audit(source, Counting(1), work=tmp_path / "work") for _ in range(2))
    assert_same(numbers(first), one_part)
    assert_same(numbers(again), one_part)
    assert [name for name, _ in calls] == ["LookAt", "ReadRows", "WeighPart", "ReadRows"]


@pytest.mark.slow
def test_a_changed_policy_is_weighed_anew(log, tmp_path):
    source = open_log(log, tmp_path / "log", 2)
    one, other = (audit(source, target=x, work=tmp_path / "work") for x in (EARLIER, cal.UniformPolicy(3)))
    assert one.headline.value != other.headline.value
    assert_same(numbers(other), numbers(audit(source, target=cal.UniformPolicy(3))))


@pytest.mark.slow
def test_a_long_log_is_worked_on_in_parts_and_says_the_same(log, tmp_path, monkeypatch):
    """Intervals come from influences, as of a log with very many trajectories."""
    monkeypatch.setattr("caliope._estimate.MOST_RESAMPLED", 0)
    source = open_log(log, tmp_path, 2)
    short = numbers(audit(source))
    monkeypatch.setattr("caliope._columns.LONG", 1500)  # the sample has fewer decisions, and is short
    monkeypatch.setattr("caliope._ragged.STRETCH", 500)
    assert_same(numbers(audit(source)), short)
