"""Whether marginalised weights, which need a Markov state, give what the plain ones do."""

from __future__ import annotations

import numpy as np

from caliope._evidence import Evidence
from caliope._formulas import wdr
from caliope.checks import W106, Finding, Level
from caliope.checks._counting import REMOVED, removed_weight
from caliope.uncertainty._intervals import influence

# Standard errors of the difference: a caution above the first, an issue above the second.
DIFFER = (3.0, 4.0)
_ROUNDING = 1e-12  # of the largest return: a smaller difference is none


def check_markov(plain: Evidence, marginalised: Evidence) -> Finding:
    r"""Compare the doubly robust estimates of plain and of marginalised weights: a test of Hausman's kind.

    .. math:: z = d / s_D, \qquad d = \hat V_{plain} - \hat V_{marginalised}, \qquad
        s_D^2 = \frac{1}{n (n - 1)} \sum_i \big( U^{plain}_i - U^{marginalised}_i \big)^2

    with the influences U of :func:`~caliope.estimators.wdr`; n counts clusters where there are any. Both estimate the
    same value if ratios are right and the state is Markov, so that a large z speaks against the state, or against the
    regression of the weights. When it breaks: a cap that removes much weight biases the plain estimate more than the
    marginalised one, and they differ although the state is Markov. Errors of the ratios move both, and are not seen.
    With few effective trajectories :math:`s_D` is large, and the test says little.

    Parameters
    ----------
    plain : Evidence
        With plain weights, normalised among those under way and capped.
    marginalised : Evidence
        The same log with the weights of :func:`~caliope.weights.marginalise_weights`.

    Returns
    -------
    Finding
        W106 with the facts d, se, z, and the share of the plain weights that caps removed: a caution where
        :math:`|z| > 3`, an issue where :math:`|z| > 4`, else a note.

    References
    ----------
    Hausman (1978), specification tests in econometrics.

    Examples
    --------
    >>> e = Evidence([1, 3, 5], np.log([2, 0.5, 3]), [0, 2, 3], gamma=0.5, q=[1, 2, 4], v=[1, 2, 3])
    >>> check_markov(e, e).level
    'note'
    """
    if not np.array_equal(plain.offsets, marginalised.offsets):
        raise ValueError(
            f"check_markov compares weights on one log, got {len(plain)} and {len(marginalised)} trajectories of other "
            "lengths."
        )
    d = float(wdr(plain) - wdr(marginalised))
    apart = plain.layout.pool(influence(wdr, plain) - influence(wdr, marginalised))
    n = len(apart)
    se = float(np.sqrt((apart**2).sum() * n / max(n - 1, 1)) / len(plain))
    rounding = _ROUNDING * plain.largest
    if abs(d) <= rounding:
        d, z, se = 0.0, 0.0, se if se > rounding else 0.0
    else:
        z = d / se if se > rounding else float(np.copysign(np.inf, d))
    level: Level = "issue" if abs(z) > DIFFER[1] else "caution" if abs(z) > DIFFER[0] else "note"
    share = sum(removed_weight(note) for note in plain.notes)
    variants = ("agree",) if level == "note" else ("differ", "capped") if share > REMOVED[0] else ("differ",)
    return W106.finding(level, *variants, d=d, se=se, z=z, share=share)
