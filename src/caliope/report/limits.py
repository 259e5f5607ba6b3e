"""What may be said on the ground of such a page, and what not."""

from __future__ import annotations

from caliope.auditing import Audit
from caliope.report.blocks import Bullets, Section, Text, Words
from caliope.report.verdict import direction, interval_text, value_texts

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
    "Total variation": "How far two sets of probabilities lie apart, from 0 (the same) to 1 (nothing in common): the "
    "share of the decisions that would have to change for one to become the other.",
    "Null, if it were right": "What a measure of error would be if the model were exactly right. Chance alone makes "
    "it larger than 0, so only what exceeds the null is error.",
    "z": "How far a number lies from what it should be, in units of its chance error. Within 2 it may be chance; "
    "beyond 4 it is hardly.",
    "Pareto shape (k)": "How heavy the tail of the weights is: how much the few largest can dominate. Below 0.5 "
    "averages settle well, above 0.7 hardly, above 1 not at all.",
}


# By how the codes of the findings begin.
_HELP = {
    (
        "L",
    ): "The log itself has to be mended first, as the reasons say: nothing computed from it can be believed "
    "before that, whatever the policy.",
    (
        "A105",
    ): "The probabilities that were logged are not those with which these actions were taken. Find out what "
    "they are, or leave them out: then they are estimated.",
    (
        "B",
        "P",
    ): "The behaviour model does not describe practice well enough to weigh with. Another model, or states "
    "that hold what those who decided looked at, might do better.",
    (
        "D",
        "S",
        "W",
        "A106",
        "A107",
    ): "Too little in this log resembles what the new policy would do. A policy nearer "
    "to practice might be evaluable, for instance the same policy in a share of the decisions; or a larger log.",
    (
        "V",
        "A108",
    ): "The fitted values cannot be used. Look for a feature that holds the outcome, and for values that "
    "were fitted otherwise.",
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
    policy, known, _ = value_texts(audit)
    practice = f"Current practice achieved {known} ({interval_text(audit.practice)})."
    if audit.verdict == "do not trust":
        return (practice, "The new policy cannot be evaluated on this log as it stands.", *_ways_out(audit))
    about = f"{policy} ({interval_text(audit.headline)})"
    first = f"If the log holds every reason behind its decisions, the new policy would have achieved about {about}."
    gain = {
        "above 0": "Under the same condition it would have done better than practice.",
        "below 0": "Under the same condition it would have done worse than practice.",
    }.get(direction(audit), "Whether that is better or worse than practice remains open.")
    return (practice, first, gain)


def _ways_out(audit: Audit) -> list[str]:
    """What might help, by what was found."""
    codes = {finding.code for finding in audit.findings if finding.level == "issue"}
    found = [text for begins, text in _HELP.items() if any(code.startswith(begins) for code in codes)]
    return found or [
        "What speaks against it is listed under the verdict; no change to the policy will mend it."
    ]


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
