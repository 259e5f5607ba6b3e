"""The command line: each command a few lines over public functions."""

from __future__ import annotations

import click

# Nothing heavy up here: --help should answer at once.
from caliope.clinical.commands import cohort
from caliope.commands.calibrate import calibrate
from caliope.commands.evaluate import evaluate
from caliope.experiments.commands import reproduce


@click.group()
@click.version_option(package_name="caliope")
def main() -> None:
    """Say what a new policy is worth on logged decisions, and whether to believe the number."""


@main.command()
@click.option("--draws", default=1000, show_default=True, help="Bootstrap draws.")
@click.option("--seed", default=0, show_default=True, help="Seed of the bootstrap.")
def demo(draws: int, seed: int) -> None:
    """Run the main job on the ward log that comes with the package."""
    from sklearn.linear_model import LogisticRegression

    import caliope as cal
    from caliope.domains import ward

    data = cal.read_table(
        ward.csv_path(),
        episode="patient",
        time="hour",
        states=["severity"],
        action="dose",
        reward="discharged",
    )
    click.echo(f"The log: {ward.csv_path().name}. {data!r}")
    click.echo(f"Nobody wrote down the probabilities. Doses: {', '.join(ward.DOSES)}.\n")

    behaviour = LogisticRegression().fit(data.states, data.actions)
    questions = {
        "1. The same care, somewhat earlier. What would it achieve?": ward.EARLIER,
        "2. The high dose for nearly everyone. What would that achieve?": ward.AGGRESSIVE,
    }
    panel = (cal.monte_carlo, cal.wis, cal.phwis, cal.difference(cal.wis))
    for question, policy in questions.items():
        evidence = cal.gather(data, cal.TabularPolicy(policy), behaviour)
        click.echo(question)
        click.echo(str(cal.estimate(evidence, *panel, n_draws=draws, rng=seed)))
        truth, now = ward.WARD.value(policy), ward.WARD.value(ward.PRACTICE)
        click.echo(
            f"   The ward is simulated, so the truth is known: {truth:.3f}, current practice {now:.3f}.\n"
        )


main.add_command(evaluate)
main.add_command(calibrate)
main.add_command(cohort)
main.add_command(reproduce)


if __name__ == "__main__":
    main()
