"""Which model to take: the simplest of those whose held-out likelihood cannot be told from the best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from caliope.ragged import Float, Int


@dataclass(frozen=True)
class Choice:
    """The recommendation, the ranking behind it, and what the paper's metric would have chosen."""

    recommended: str
    reason: str
    ranking: tuple[str, ...]  # by NLL, best first
    behind: Mapping[str, float]  # NLL above the best
    se: Mapping[str, float]  # of that difference, by trajectory
    by_paper: str
    barred: tuple[str, ...] = ()  # judged on trajectories that they were fitted on

    def __str__(self) -> str:
        lines = [f"Take {self.recommended or 'none'}: {self.reason}."]
        if self.recommended and self.by_paper != self.recommended:
            lines.append(
                f"The paper's metric would have taken {self.by_paper}. It rewards agreeing with a smoothed histogram, "
                "and cannot tell a right model from a smooth one."
            )
        for place, name in enumerate(self.ranking, 1):
            said = "best" if self.behind[name] == 0 else f"{self.behind[name]:+.4f} (se {self.se[name]:.4f})"
            said += ", but judged on what it was fitted on" if name in self.barred else ""
            lines.append(f"  {place}. {name}: NLL {said}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite becomes None."""
        finite = {name: x if np.isfinite(x) else None for name, x in self.behind.items()}
        return {
            "recommended": self.recommended,
            "reason": self.reason,
            "ranking": list(self.ranking),
            "behind": finite,
            "se": {name: x if np.isfinite(x) else None for name, x in self.se.items()},
            "by_paper": self.by_paper,
        }


def choose(
    losses: Mapping[str, Float], lengths: Int, paper: Mapping[str, float], *, barred: tuple[str, ...] = ()
) -> Choice:
    """Choose by the mean loss: within one standard error of the best, the model that comes first.

    ``losses`` holds each model's sum over every trajectory, (n,). The standard error is that of the difference to the
    best model on the same trajectories: noise that both share does not count. Models are listed from simple to
    complex, so that the first is the simplest. ``paper`` is the paper's metric of each; those ``barred`` remember the
    log that judges them, and are ranked but never taken.
    """
    if any(np.isnan(loss).any() for loss in losses.values()):
        raise ValueError("a loss is not a number: every model must give probabilities at every step.")
    steps = lengths.sum()
    means = {name: float(loss.sum() / steps) for name, loss in losses.items()}
    # Among models that rule out what was done, fewer trajectories with such a step are better.
    ruined = {name: int(np.isinf(loss).sum()) for name, loss in losses.items()}
    ranking = tuple(sorted(means, key=lambda name: (means[name], ruined[name], list(losses).index(name))))
    open_to_choice = [name for name in ranking if name not in barred]
    best = open_to_choice[0] if open_to_choice else ranking[0]
    certain = np.isfinite(means[best])
    behind = {name: means[name] - means[best] if certain else means[name] for name in losses}
    se = {
        name: _se(losses[name] - losses[best], lengths) if np.isfinite(behind[name]) else np.inf
        for name in losses
    }
    close = [
        name
        for name in losses
        if name not in barred and (name == best or 0 <= behind[name] <= se[name] < np.inf)
    ]
    recommended = close[0] if close and certain else ""
    if not open_to_choice:
        reason = "every model was fitted on the trajectories that judge it"
    elif not certain:
        reason = "every model rules out some action that was taken; shrink them towards the marginal first"
    elif recommended == best:
        reason = f"lowest held-out NLL, {means[best]:.4f}"
    else:
        reason = (
            f"simpler than {best}, and its held-out NLL is higher by {behind[recommended]:.4f} only, within one "
            f"standard error ({se[recommended]:.4f})"
        )
    by_paper = min(paper, key=lambda name: paper[name])
    return Choice(recommended, reason, ranking, behind, se, by_paper, barred)


def _se(difference: Float, lengths: Int) -> float:
    """Standard error of a mean over steps, from sums over trajectories."""
    steps, n = lengths.sum(), len(lengths)
    off = difference - difference.sum() / steps * lengths
    return float(np.sqrt((off**2).sum() * n / max(n - 1, 1)) / steps)
