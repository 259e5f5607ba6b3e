"""What may be said on the ground of such a page, and what not."""

from __future__ import annotations

from caliope.auditing import Audit
from caliope.report.blocks import Bullets, Section, Text, Words
from caliope.report.verdict import direction, interval_text

_WORDS = {
    "Episode, trajectory": "One patient's course: states, decisions and rewards, step after step.",
    "Policy": "A rule that says, for every state of a patient, how likely each action is.",
    "Value": "The sum of the rewards of an episode, on average; what a reward is was decided by whoever made the "
    "log.",
    "Behaviour model": "An estimate of how likely each decision was for those who decided.",
    "Weight": "How much more likely an episode's decisions are under the new policy than in practice.",
    "Effective episodes": "To how many equally weighted episodes the weights amount: the true size of the sample.",
    "Interval": "At a level of 95%: it would hold the true value in 95 of 100 such logs, if the weights are right.",
    "Doubly robust": "Fitted values corrected by weighted outcomes: right if either the values or the weights are.",
    "Direct method": "Fitted values alone: no weights, and nothing in it notices if the values are wrong.",
    "NLL": "Negative log-likelihood: how surprised a model is by what was done. Lower is better.",
}


def limits_section(audit: Audit) -> Section:
    """Two lists: what can be said, and what cannot."""
    return Section(
        "limits",
        "What can be said",
        "What can and cannot be said",
        (
            Text("What this log supports:"),
            Bullets(_can(audit)),
            Text("What it does not support, whatever the numbers:"),
            Bullets(_cannot(audit)),
        ),
    )


def words_section(_: Audit) -> Section:
    """The words of the page, explained."""
    return Section("words", "Words", "Words used here", (Words(_WORDS),))


def _can(audit: Audit) -> tuple[str, ...]:
    practice = (
        f"Current practice achieved {audit.practice.cells()['value']} ({interval_text(audit.practice)})."
    )
    if audit.verdict == "do not trust":
        return (
            practice,
            "The new policy, as it is stated, cannot be evaluated on this log. A policy nearer to practice might be: "
            "for instance the same policy in a share of the decisions, or with fewer departures from practice.",
        )
    about = f"{audit.headline.cells()['value']} ({interval_text(audit.headline)})"
    first = f"If the log holds every reason behind its decisions, the new policy would have achieved about {about}."
    gain = {
        "above 0": "Under the same condition it would have done better than practice.",
        "below 0": "Under the same condition it would have done worse than practice.",
    }.get(direction(audit), "Whether that is better or worse than practice remains open.")
    return (practice, first, gain)


def _cannot(audit: Audit) -> tuple[str, ...]:
    return (
        "That the policy is safe or beneficial for a given patient: this is a mean over the patients of this log.",
        "That it would do the same elsewhere or later: other patients, other staff and other habits were not in the "
        "log.",
        "That no unrecorded reason was at work. No computation on the log can show this; the section on reasons that "
        "nobody recorded says how strong one would have to be.",
        "That the interval holds every error: it holds the chance in which patients were logged, not the error of the "
        "behaviour model or of the values that were fitted.",
        "Anything about actions that were never taken in such states.",
    )
