"""Datasets of other libraries: the same numbers as by hand, what was cut off, what is refused."""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

import caliope as cal

LENGTHS = (3, 2, 4)
RNG = np.random.default_rng(0)
OBSERVED = [
    RNG.random((n + 1, 2)).astype(np.float32) for n in LENGTHS
]  # one after the last action, as in Minari
ACTED = [np.array([1, 2, 0]), np.array([0, 1]), np.array([2, 2, 1, 0])]
EARNED = [RNG.random(n).astype(np.float32) for n in LENGTHS]


def check(found, *, n_actions, terminated):
    assert found.offsets.tolist() == [0, 3, 5, 9]
    assert found.actions.tolist() == [1, 2, 0, 0, 1, 2, 2, 1, 0]
    assert found.states == pytest.approx(np.concatenate([o[:-1] for o in OBSERVED]))
    assert found.rewards == pytest.approx(np.concatenate(EARNED))
    assert found.n_actions == n_actions
    assert found.terminated.tolist() == terminated


# -- Minari --


@pytest.fixture
def make_minari(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    minari = pytest.importorskip("minari", reason="the extra rl is not installed")
    spaces = pytest.importorskip("gymnasium").spaces
    from minari.data_collector import EpisodeBuffer

    def make(actions, action_space, observations=OBSERVED, observation_space=None):
        buffers = [
            EpisodeBuffer(
                id=i,
                observations=observations[i],
                actions=actions[i],
                rewards=EARNED[i],
                terminations=np.arange(n)
                == (n - 1 if i == 0 else n),  # the first ends, the second is cut off,
                truncations=np.arange(n) == (n - 1 if i == 1 else n),  # and of the third nobody says anything
                infos={},
            )
            for i, n in enumerate(LENGTHS)
        ]
        box = observation_space or spaces.Box(0, 1, (2,), np.float32)
        minari.create_dataset_from_buffers(
            "made/up-v0", buffers, action_space=action_space, observation_space=box
        )
        return minari.load_dataset("made/up-v0")

    make.spaces = spaces
    return make


pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:minari", "ignore:.*:UserWarning")


def test_minari_with_the_space_of_actions(make_minari):
    dataset = make_minari(ACTED, make_minari.spaces.Discrete(4))
    check(cal.io.read_minari(dataset), n_actions=4, terminated=[True, False, False])
    check(cal.io.read_minari(dataset, time_limit=True), n_actions=4, terminated=[True, True, True])


def test_minari_whose_actions_do_not_begin_with_0(make_minari):
    dataset = make_minari([a + 5 for a in ACTED], make_minari.spaces.Discrete(3, start=5))
    check(cal.io.read_minari(dataset), n_actions=3, terminated=[True, False, False])


def test_minari_with_whole_numbers_as_observations(make_minari):
    observed = [np.arange(n + 1) for n in LENGTHS]
    dataset = make_minari(
        ACTED, make_minari.spaces.Discrete(3), observed, observation_space=make_minari.spaces.Discrete(9)
    )
    assert cal.io.read_minari(dataset).states.tolist() == [[x] for n in LENGTHS for x in range(n)]


def test_minari_with_actions_that_are_no_choice_is_refused(make_minari):
    dataset = make_minari(
        [RNG.random((n, 2), np.float32) for n in LENGTHS], make_minari.spaces.Box(0, 1, (2,))
    )
    with pytest.raises(ValueError, match=r"must be whole numbers \(Discrete\), but these are Box"):
        cal.io.read_minari(dataset)


def test_minari_with_observations_in_parts_is_refused(make_minari):
    parts = make_minari.spaces.Dict({"heart": make_minari.spaces.Box(0, 1, (2,), np.float32)})
    dataset = make_minari(
        ACTED, make_minari.spaces.Discrete(3), [{"heart": o} for o in OBSERVED], observation_space=parts
    )
    with pytest.raises(ValueError, match="come in several parts"):
        cal.io.read_minari(dataset)


def test_something_else_is_no_minari_dataset():
    with pytest.raises(TypeError, match=r"from minari\.load_dataset; got list"):
        cal.io.read_minari([])


# -- d3rlpy --


@dataclass
class Episode:
    """The fields of an episode of d3rlpy 2.8, with its shapes."""

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    terminated: bool


def like_d3rlpy(kind="DISCRETE"):
    episodes = [
        Episode(o[:-1], a[:, None], r[:, None], i != 1)
        for i, (o, a, r) in enumerate(zip(OBSERVED, ACTED, EARNED, strict=True))
    ]
    about = SimpleNamespace(action_space=SimpleNamespace(name=kind), action_size=3)
    return SimpleNamespace(episodes=episodes, dataset_info=about)


def test_what_is_shaped_like_d3rlpy():
    check(cal.io.read_d3rlpy(like_d3rlpy()), n_actions=3, terminated=[True, False, True])


def test_d3rlpy_itself():
    d3rlpy = pytest.importorskip("d3rlpy", reason="d3rlpy is not installed: it brings gym and torch with it")
    observed = np.concatenate([o[:-1] for o in OBSERVED])
    ends = np.isin(np.arange(9), (2, 8)).astype(np.float32)
    cut = (np.arange(9) == 4).astype(np.float32)
    dataset = d3rlpy.dataset.MDPDataset(
        observed, np.concatenate(ACTED), np.concatenate(EARNED), ends, timeouts=cut
    )
    check(cal.io.read_d3rlpy(dataset), n_actions=3, terminated=[True, False, True])
    continuous = d3rlpy.dataset.MDPDataset(observed, observed, np.concatenate(EARNED), ends, timeouts=cut)
    with pytest.raises(ValueError, match="these are continuous"):
        cal.io.read_d3rlpy(continuous)


def test_d3rlpy_with_continuous_actions_is_refused():
    with pytest.raises(ValueError, match="these are continuous: divide them into bins"):
        cal.io.read_d3rlpy(like_d3rlpy("CONTINUOUS"))


def test_d3rlpy_with_a_time_limit_that_belongs_to_the_question():
    assert cal.io.read_d3rlpy(like_d3rlpy(), time_limit=True).terminated.all()


def test_d3rlpy_with_observations_in_parts_is_refused():
    # Two parts and two steps: laid out flat, the parts would pass for steps.
    parts = like_d3rlpy()
    parts.episodes = [parts.episodes[1]]
    whole = parts.episodes[0].observations
    parts.episodes[0].observations = [whole, whole]
    with pytest.raises(ValueError, match="come in several parts"):
        cal.io.read_d3rlpy(parts)
    parts.episodes[0].observations = np.stack([whole, whole, whole])
    with pytest.raises(ValueError, match="episode 0 has 3 observations and 2 actions"):
        cal.io.read_d3rlpy(parts)


def test_something_else_is_no_d3rlpy_dataset():
    with pytest.raises(TypeError, match="of d3rlpy 2; got dict"):
        cal.io.read_d3rlpy({})


def test_a_dataset_without_episodes_is_refused():
    empty = like_d3rlpy()
    empty.episodes = []
    with pytest.raises(ValueError, match="has no episodes"):
        cal.io.read_d3rlpy(empty)


# -- Open Bandit Pipeline --


def feedback(**changed):
    given = {
        "n_rounds": 4,
        "n_actions": 3,
        "context": np.array([[0.0, 1.0], [0.5, 0.5], [1.0, 0.0], [0.2, 0.8]]),
        "action": np.array([0, 2, 1, 0]),
        "position": None,
        "reward": np.array([1, 0, 0, 1]),
        "pscore": np.array([0.5, 0.25, 0.25, 0.4]),
    }
    return given | changed


def test_rounds_of_a_bandit_are_trajectories_of_one_step():
    data = cal.io.read_obp(feedback())
    assert (len(data), data.n_steps, data.n_actions) == (4, 4, 3)
    assert data.feature_names == ("context 0", "context 1")
    # SNIPS of the uniform policy by hand: weights (1/3) / pscore = 2/3, 4/3, 4/3, 5/6, returns 1, 0, 0, 1:
    # (2/3 + 5/6) / (2/3 + 4/3 + 4/3 + 5/6) = 1.5 / (25/6) = 0.36.
    evidence = cal.gather(data, cal.UniformPolicy(3), data["pscore"])
    assert float(cal.wis(evidence)) == pytest.approx(0.36)


def test_positions_that_differ_were_known():
    assert cal.io.read_obp(feedback(position=np.zeros(4, int))).feature_names == ("context 0", "context 1")
    data = cal.io.read_obp(feedback(position=np.array([0, 1, 2, 0])))
    assert data.feature_names == ("context 0", "context 1", "position")
    assert data.states[:, 2].tolist() == [0, 1, 2, 0]


def test_propensities_need_not_be_there():
    assert dict(cal.io.read_obp(feedback(pscore=None)).columns) == {}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (feedback(context=None), "the feedback has no 'context'; it must hold"),
        ({"context": [[0.0]]}, "has no 'action' and no 'reward'"),
        (feedback(action=np.array([0, 3, 1, 0])), "action"),
        (feedback(reward=np.array([1.0, np.nan, 0, 1])), "rewards"),
        (feedback(context=np.ma.masked_less(feedback()["context"], 0.3)), "observations has masked entries"),
        (feedback(pscore=np.ma.masked_less(feedback()["pscore"], 0.3)), "pscore has masked entries"),
        (feedback(position=np.array([0, 1])), r"position must have shape \(4,\)"),
        (feedback(position=np.array([None] * 4)), "position must hold numbers"),
        (feedback(n_actions=3.7), "n_actions must be a whole number, got 3.7"),
        (feedback(context=3.0), "one row per step"),
    ],
)
def test_feedback_that_lacks_something_is_refused(given, said):
    with pytest.raises(ValueError, match=said):
        cal.io.read_obp(given)


def test_something_else_is_no_feedback():
    with pytest.raises(TypeError, match="feedback must be a mapping"):
        cal.io.read_obp([1, 2])
