"""How many digits a number deserves beside its confidence interval."""

from __future__ import annotations

import math

FURTHER = 9  # digits at most: before that, small numbers are printed with an exponent


def number_text(x: float, width: float, further: int = 0) -> str:
    """Print as many digits as an interval of such a width deserves, two of its width, and some further ones."""
    if not math.isfinite(x) or not math.isfinite(width) or width <= 0:
        return f"{x:.4g}"
    decimals = 1 - math.floor(math.log10(width)) + further
    if decimals > 6 or max(abs(x), width) >= 1e7:
        return f"{x:.3g}"
    text = f"{round(x, decimals):.{max(0, decimals)}f}"
    return text.lstrip("-") if float(text) == 0 else text


def decimals_of(x: float, width: float) -> int | None:
    """How many decimals :func:`number_text` prints; None for what is not finite and for powers of ten."""
    if not math.isfinite(x):
        return None
    if math.isfinite(width) and width > 0:
        decimals = 1 - math.floor(math.log10(width))
        return None if decimals > 6 or max(abs(x), width) >= 1e7 else max(0, decimals)
    if x == 0:
        return 0
    if not 1e-4 <= abs(float(f"{x:.4g}")) < 1e4:
        return None
    # Four significant digits without the zeros at their end.
    most = 3 - math.floor(math.log10(abs(x)))
    return next(d for d in range(max(0, most) + 1) if d >= most or round(x, d) == round(x, most))
