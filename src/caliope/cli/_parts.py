"""The command ``evaluate`` on a log that is read in parts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from caliope._audit._audit import audit
from caliope._audit._result import Audit
from caliope._audit._settings import Stages
from caliope._trajectories import Trajectories
from caliope.cli._columns import (
    ALL,
    files_of,
    inference_notes,
    name_columns,
    reading_options,
    recorded_before_of,
)
from caliope.cli._config import Study, show_settings
from caliope.cli._console import Display
from caliope.cli._policies import behaviour_models, find_policy, softened, target_of, words_for
from caliope.engines import Dask, Engine, Local
from caliope.io import RecommendedDoses, open_partitions


@dataclass(frozen=True)
class PolicyInColumns:
    """The policy of a study, which is read from columns of the log, in every part of it."""

    study: Study

    def on(self, data: Trajectories) -> Any:
        """Its probabilities of all actions at every step of a part, (N, A)."""
        policy = target_of(self.study, data).policy
        return policy.on(data) if isinstance(policy, RecommendedDoses) else policy


def audit_in_parts(study: Study, display: Display, work: str | None, *, quiet: bool, about: Any) -> Audit:
    """Audit the log of a study a part at a time; ``about`` makes the names of a report from the question."""
    begin = Stages(display)
    with begin("opening the log"):
        named, guess, encoder = name_columns(study, quiet=quiet)
        options = {k: x for k, x in reading_options(named, encoder).items() if x is not None}
        size: dict[str, Any] = {} if study.sample is None else {"sample": study.sample}
        if "episode" not in options:
            raise ValueError(
                "a log that is read in parts needs --episode, the column that tells trajectories apart."
            )
        source = open_partitions(files_of(named), unit=named.unit, **size, **_single(options))
        target, question = softened(study, _policy_of(study), words_for(study))
    notes = inference_notes(study, named, guess)
    for name, text in notes.items():
        display.say(f"{name}: {text}")
    found = audit(
        source,
        target,
        partial(behaviour_models, study) if study.models else None,
        gamma=study.gamma,
        logged=study.propensity[0] if study.propensity else None,
        level=study.level,
        n_draws=study.draws,
        fit_steps=study.fit_steps,
        about=about(study, question),
        learnt_on=study.learnt_on,
        ended=ALL if named.ended == ALL else None,
        worst=study.worst,
        recorded_before=recorded_before_of(study),
        rng=study.seed,
        progress=display,
        work=work,
        engine=_engine_of(study),
    )
    asked = {"evaluated": question} if study.question else {}
    read = {**asked, **show_settings(named), **notes, **found.data.encoder.describe()}
    return replace(
        found, settings=replace(found.settings, source=read), stages=(*begin.done, *found.stages)
    ).require(**dict(study.require))


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
