"""``caliope calibrate``: which behaviour model describes the log, and how well."""

from __future__ import annotations

from typing import Any

import click

from caliope.commands.options import HOW, LOG, with_options
from caliope.commands.running import DISTRUSTED, collected_warnings, one_line_errors, progress

# Nothing heavy up here: --help should answer at once.


@click.command()
@click.argument("log")
@with_options(LOG, HOW)
def calibrate(log: str, **given: Any) -> None:
    """Fit models of who acted, and say which one to take.

    LOG is a table or a study file, as for evaluate; a new policy is not needed. Every model is judged on decisions of
    episodes that it has not seen.

    Exit code: 0; 3 if the best model should not be believed either; 2 if the input is bad.
    """
    as_json, quiet = given.pop("as_json"), given.pop("quiet")
    with one_line_errors():
        found, on_log = _calibrate(log, given, quiet=quiet)
        _say(found, on_log, as_json=as_json)
        distrusted = _distrusted(found, on_log)
    if distrusted:
        raise click.exceptions.Exit(DISTRUSTED)


def _calibrate(log: str, given: dict[str, Any], *, quiet: bool) -> Any:
    from caliope.auditing import candidate_models, check_log
    from caliope.behaviour import fit_behaviour
    from caliope.calibration import compare_policies
    from caliope.commands.candidates import models_named
    from caliope.commands.reading import read_log, strata_of
    from caliope.commands.study import study_from

    study = study_from(log, given, needs_target=False)
    with progress(quiet=quiet) as stage, collected_warnings():
        import numpy as np

        stage("reading the log")
        read = read_log(study)
        data = read.data
        on_log = check_log(data)
        which = data.sampled(study.fit_steps, rng=np.random.default_rng(study.seed))
        part = data.part(which)
        models = models_named(study.models, data, seed=study.seed) or candidate_models(
            data, random_state=study.seed
        )
        fitted = {}
        for name, model in models.items():
            stage(f"fitting {name}")
            fitted[name] = fit_behaviour(model, part, mode="cross", rng=study.seed)
        stage("comparing them")
        found = compare_policies(fitted, data, by=strata_of(study, data), level=study.level, rng=study.seed)
    for name in read.guessed:
        if not quiet:
            click.echo(f"{name}: {read.settings[name]}", err=True)
    return found, on_log


def _distrusted(found: Any, on_log: Any) -> bool:
    """Whether no model can be taken, or the one that is taken, or the log itself, should not be believed."""
    from caliope.results import verdict

    return not found.recommended or verdict((*found[found.recommended].findings, *on_log)) == "do not trust"


def _say(found: Any, on_log: Any, *, as_json: bool) -> None:
    if not as_json:
        click.echo(str(found))
        if on_log:
            click.echo("\nAbout the log itself:")
        for finding in on_log:
            click.echo(f"  {finding}")
        return
    import json

    from caliope.report.numbers import finite

    about = {**found.to_dict(), "log": [finding.to_dict() for finding in on_log]}
    click.echo(json.dumps(finite(about), indent=2, allow_nan=False))
