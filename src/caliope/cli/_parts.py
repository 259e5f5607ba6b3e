"""The commands ``evaluate``, ``compare`` and ``calibrate`` on a log that is read in parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from caliope._audit._about import About
from caliope._audit._audit import audit
from caliope._audit._compare import BehaviourModels
from caliope._audit._comparison import PolicyComparison
from caliope._audit._opened import compare_behaviour
from caliope._audit._result import Audit
from caliope._audit._settings import Stages
from caliope._audit._several import compare
from caliope._trajectories import Trajectories
from caliope.cli._columns import (
    ALL,
    files_of,
    inference_notes,
    name_columns,
    reading_options,
    recorded_before_of,
    refuse_models,
)
from caliope.cli._config import Study, show_settings
from caliope.cli._console import Display
from caliope.cli._policies import behaviour_models, find_policy, softened, target_of, words_for
from caliope.cli._targets import each_target
from caliope.engines import Dask, Engine, Local
from caliope.io import Partitions, RecommendedDoses, open_partitions


@dataclass(frozen=True)
class PolicyInColumns:
    """The policy of a study, which is read from columns of the log, in every part of it."""

    study: Study

    def on(self, data: Trajectories) -> Any:
        """Its probabilities of all actions at every step of a part, (N, A)."""
        policy = target_of(self.study, data).policy
        return policy.on(data) if isinstance(policy, RecommendedDoses) else policy


@dataclass(frozen=True, eq=False)
class Opened:
    """The log of a study that is read in parts, and what was inferred about its columns."""

    study: Study  # with all columns named
    source: Partitions
    notes: Mapping[str, str]

    def settings(self, data: Trajectories, **more: str) -> dict[str, str]:
        """What was read, in words; ``data`` is the sample that levels of categories and doses were learnt on."""
        return {**more, **show_settings(self.study), **self.notes, **data.encoder.describe()}


def audit_in_parts(study: Study, display: Display, work: str | None, *, quiet: bool, about: Any) -> Audit:
    """Audit the log of a study a part at a time; ``about`` makes the names of a report from the question."""
    begin = Stages(display)
    with begin("opening the log"):
        opened = _open(study, display, quiet=quiet)
        target, question = softened(study, _policy_of(study), words_for(study))
    found = audit(
        opened.source,
        target,
        about=about(study, question),
        progress=display,
        work=work,
        **_asked_as(opened),
    )
    read = opened.settings(found.data, **({"evaluated": question} if study.question else {}))
    settings = replace(found.settings, source=read)
    found = replace(found, settings=settings, stages=(*begin.done, *found.stages))
    return found.require(**dict(study.require))


def compare_in_parts(
    study: Study, display: Display, work: str | None, *, quiet: bool, about: About
) -> PolicyComparison:
    """Compare the policies of a study on a log that is read a part at a time."""
    display("opening the log")
    opened = _open(study, display, quiet=quiet)
    targets = {
        name: softened(each, _policy_of(each), words_for(each))[0]
        for name, each in each_target(study).items()
    }
    found = compare(
        opened.source,
        targets,
        about=about,
        progress=display,
        work=work,
        **_asked_as(opened),
    )
    audits = {
        name: replace(x, settings=replace(x.settings, source=opened.settings(x.data)))
        for name, x in found.audits.items()
    }
    return replace(found, audits=audits)


def calibrate_in_parts(study: Study, display: Display, work: str | None, *, quiet: bool) -> BehaviourModels:
    """Fit and compare behaviour models on the sample that an audit of the log would fit them on."""
    display("opening the log")
    opened = _open(study, display, quiet=quiet)
    return compare_behaviour(
        opened.source,
        _models_of(study),
        level=study.level,
        fit_steps=study.fit_steps,
        rng=study.seed,
        progress=display,
        work=work,
        engine=_engine_of(study),
    )


def _open(study: Study, display: Display, *, quiet: bool) -> Opened:
    """Name the columns of a log, and open it without reading it."""
    named, guess, encoder = name_columns(study, quiet=quiet)
    options = {k: x for k, x in reading_options(named, encoder).items() if x is not None}
    size: dict[str, Any] = {} if study.sample is None else {"sample": study.sample}
    if "episode" not in options:
        raise ValueError(
            "a log that is read in parts needs --episode, the column that tells trajectories apart."
        )
    source = open_partitions(files_of(named), unit=named.unit, **size, **_single(options))
    notes = inference_notes(study, named, guess)
    for name, text in notes.items():
        display.say(f"{name}: {text}")
    return Opened(named, source, notes)


def _asked_as(opened: Opened) -> dict[str, Any]:
    """Arguments that an audit and a comparison of several policies have in common."""
    study = opened.study
    return {
        "models": _models_of(study),
        "gamma": study.gamma,
        "logged": study.propensity[0] if study.propensity else None,
        "level": study.level,
        "fit_steps": study.fit_steps,
        "ended": ALL if study.ended == ALL else None,
        "recorded_before": recorded_before_of(study),
        "n_draws": study.draws,
        "learnt_on": study.learnt_on,
        "worst": study.worst,
        "rng": study.seed,
        "engine": _engine_of(study),
    }


def _models_of(study: Study) -> Any:
    refuse_models(study)
    return partial(behaviour_models, study) if study.models else None


def _single(options: dict[str, Any]) -> dict[str, Any]:
    """One action column by its name: whole numbers in it are then counted before they are read."""
    actions = options["action"]
    return options | {"action": actions[0]} if len(actions) == 1 else options


def _policy_of(study: Study) -> Any:
    if study.policy is not None:
        return find_policy(study.policy)
    return PolicyInColumns(replace(study, soften=None))


def _engine_of(study: Study) -> Engine:
    return Local(study.workers) if study.engine == "local" else Dask(study.scheduler, study.workers)
