"""``caliope demo``: the main job on a sepsis cohort whose truth is known."""

from __future__ import annotations

import click

from caliope.commands.running import one_line_errors, progress

SHARE = 0.2  # of the decisions, that the new policy takes


@click.command()
@click.option("--patients", default=2000, show_default=True, help="Patients in the log.")
@click.option("--seed", default=0, show_default=True, help="Seed of the log and of the audit.")
@click.option("--out", default="caliope-demo.html", show_default=True, help="Where to write the report.")
@click.option("--quiet", is_flag=True, help="No progress.")
def demo(patients: int, seed: int, out: str, quiet: bool) -> None:
    """Audit a new policy on a sepsis cohort that comes with the package (extra sepsis)."""
    with one_line_errors():
        _demo(patients, seed, out, quiet=quiet)


def _demo(patients: int, seed: int, out: str, *, quiet: bool) -> None:
    import caliope as cal
    from caliope.commands.writing import report_writer
    from caliope.domains import icu_sepsis

    write = report_writer(out)
    data = icu_sepsis.simulate(patients, rng=seed)
    click.echo(f"The log: sepsis patients, fluids and vasopressors every four hours. {data!r}")
    click.echo("Nobody wrote down the probabilities with which the clinicians chose.")
    click.echo(
        f"The question: what if in {SHARE:.0%} of the decisions a computed policy decided, and else the clinicians?\n"
    )
    target = cal.mix(cal.practice, icu_sepsis.Bedside(icu_sepsis.optimal()), SHARE)
    with progress(quiet=quiet) as stage:
        found = cal.audit(
            data,
            target,
            gamma=0.99,
            by=cal.severity_strata(data["sofa"]),
            fit_steps=4000,
            rng=seed,
            progress=stage,
        )
    click.echo(str(found))
    table = (1 - SHARE) * icu_sepsis.load().expert + SHARE * icu_sepsis.optimal()
    truth, now = (icu_sepsis.value(policy, gamma=0.99) for policy in (table, None))
    click.echo(f"\nThe cohort is simulated, so the truth is known: {truth:.3f}; current practice {now:.3f}.")
    if write is not None:
        write(found)
    click.echo(f"Report: {out}")
