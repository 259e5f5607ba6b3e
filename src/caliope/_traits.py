"""Traits of estimators: what each one reads, how it uses weights and lengths, and what it is called.

The checks judge an estimate by these traits and by nothing else, so that an estimator of your own is judged like
those of the package. An estimator that declares nothing is judged cautiously; see :func:`traits_of`.
"""

from __future__ import annotations

import functools
import reprlib
from collections.abc import Callable, Set as AbstractSet
from dataclasses import dataclass, fields as dataclass_fields, replace
from typing import Any, Literal, Protocol, TypeVar

from caliope._evidence import Evidence

Lengths = Literal["behaviour", "evaluation"]
INPUTS = frozenset({"weights", "values"})


class Estimator(Protocol):
    """A function from evidence to a value; its traits say how to judge and what to call it.

    Examples
    --------
    >>> from caliope import wis
    >>> isinstance(traits_of(wis).label, str)
    True
    """

    def __call__(self, e: Evidence, /) -> Any:
        """Value of the target policy; one per row of counts where there are several."""


F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Traits:
    """What an estimator relies on.

    Parameters
    ----------
    label : str
        What a table calls it.
    uses : set of {"weights", "values"}
        What it reads beside the returns: importance weights, fitted values, both, or neither.
    normalised : bool
        Whether the weights are divided by their own sum. If not, weight that a transform removes is lost.
    by_step : bool
        Whether each step is weighted by itself, and not the trajectory as a whole.
    lengths : {None, "behaviour", "evaluation"}
        Whose distribution of lengths an average over lengths keeps; None where there is no such average.
    declared : bool
        Whether all this was said by the author of the estimator. If not, the checks assume the worse case.
    core : callable, optional
        The estimator below :func:`~caliope.estimators.per_horizon` and :func:`~caliope.uncertainty.difference`, which
        set it; None means the estimator itself.
    against : tuple of Traits
        Traits of what a difference subtracts.

    Examples
    --------
    >>> Traits("Trimmed importance sampling", uses={"weights"}).weighted
    True
    """

    label: str
    uses: AbstractSet[str]
    normalised: bool = False
    by_step: bool = False
    lengths: Lengths | None = None
    declared: bool = True
    core: Estimator | None = None
    against: tuple[Traits, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.uses, AbstractSet) or not self.uses <= INPUTS:
            raise ValueError(
                f"uses must be a set of 'weights' and 'values', one of them, or an empty set; got {self.uses!r}."
            )
        if self.lengths not in (None, "behaviour", "evaluation"):
            raise ValueError(f"lengths must be None, 'behaviour' or 'evaluation', got {self.lengths!r}.")
        object.__setattr__(self, "uses", frozenset(self.uses))

    @property
    def weighted(self) -> bool:
        """Whether importance weights enter."""
        return "weights" in self.uses

    @property
    def valued(self) -> bool:
        """Whether fitted values enter."""
        return "values" in self.uses

    @property
    def averages_returns(self) -> bool:
        """Whether the estimate is a mean of returns, weighted or not, and not of fitted values alone."""
        return self.weighted or not self.valued

    @property
    def sides(self) -> tuple[Traits, ...]:
        """These traits, and those of everything that is subtracted."""
        return (self, *self.against)


def estimator(traits: Traits | None = None, /, **fields: Any) -> Callable[[F], F]:
    """Declare the traits of an estimator.

    Parameters
    ----------
    traits : Traits, optional
        Traits to start from, such as those of a similar estimator: ``traits_of(cal.dr)``.
    **fields
        Fields of :class:`Traits`. Without a label, the first line of the docstring serves.

    Returns
    -------
    callable
        A decorator, which returns the function itself.

    Examples
    --------
    >>> @estimator(uses={"weights"}, normalised=True)
    ... def halved(e):
    ...     '''Weighted importance sampling, halved.'''
    ...     return e.total(e.final_weight * e.returns) / e.total(e.final_weight) / 2
    >>> traits_of(halved).label, traits_of(halved).normalised
    ('Weighted importance sampling, halved', True)
    """
    if traits is not None and not isinstance(traits, Traits):
        raise TypeError(
            "estimator takes traits, not the function itself: write @estimator(uses={'weights'}) above the function, "
            f"got {traits!r}."
        )
    unknown = set(fields) - {each.name for each in dataclass_fields(Traits)}
    if unknown:
        known = ", ".join(each.name for each in dataclass_fields(Traits))
        raise TypeError(f"an estimator has no trait {sorted(unknown)[0]!r}; the traits are {known}.")

    def declare(function: F) -> F:
        stated = {"label": label(function)} | fields
        # The core of another estimator is not that of this one.
        declared = Traits(**stated) if traits is None else replace(traits, core=None, **stated)
        function.traits = declared  # type: ignore[attr-defined]
        return function

    return declare


def traits_of(estimator: Callable[..., Any]) -> Traits:
    """Traits of an estimator: declared, derived, or cautious.

    A ``functools.partial`` has the traits of its function, and so has a function wrapped by ``functools.wraps``.
    ``per_horizon`` and ``difference`` derive theirs. Any other callable is undeclared. It is never better than
    "caution" (finding D114), so that nobody gains trust by hiding an estimator in a lambda:

    - It counts as weighted: it needs as many effective trajectories as an estimator with weights, and the tests of
      the weights, the note on fitted behaviour probabilities and all notes on the weights apply.
    - Its weights count as not normalised: much removed weight is an issue.
    - Where the evidence has values, it may read them, and may read nothing else. So their notes apply, the test of
      the values on the log applies, and what came after a cut may be taken from them.
    - It may also ignore them: trajectories that were cut off may count as if they had ended.
    - It is not taken for an average over lengths or for a stepwise ratio. Those are particular constructions, and
      the checks of them would be wrong for nearly every other function.

    Parameters
    ----------
    estimator : callable
        A function of evidence.

    Returns
    -------
    Traits
        What the checks go by.

    Examples
    --------
    >>> def scaled(e, k):
    ...     '''Scaled mean return.'''
    ...     return k * e.total(e.returns) / e.n
    >>> traits_of(functools.partial(scaled, k=2.0)).label
    'Scaled mean return (k=2)'
    >>> sorted(traits_of(scaled).uses), traits_of(scaled).declared
    (['values', 'weights'], False)
    """
    declared = getattr(estimator, "traits", None)
    if isinstance(declared, Traits):
        return declared
    if isinstance(estimator, functools.partial):
        inner, settings = traits_of(estimator.func), _show_settings(estimator)
        return replace(inner, label=f"{inner.label} ({settings})" if settings else inner.label)
    return Traits(_describe(estimator), uses=INPUTS, declared=False)


def core_of(estimator: Estimator) -> Estimator:
    """Return the estimator below all averages over lengths and differences."""
    return traits_of(estimator).core or estimator


def name_of(estimator: Callable[..., Any]) -> str:
    """Return what an estimator is called in code, with the settings of a ``functools.partial``.

    Parameters
    ----------
    estimator : callable
        A function of evidence.

    Returns
    -------
    str
        Its name, by which ``table[name]`` finds its row.

    Examples
    --------
    >>> def scaled(e, k):
    ...     return k * e.total(e.returns) / e.n
    >>> name_of(functools.partial(scaled, k=2.0)), name_of(lambda e: 0.0)
    ('scaled(k=2)', 'lambda')
    """
    if isinstance(estimator, functools.partial):
        settings = _show_settings(estimator)
        return name_of(estimator.func) + (f"({settings})" if settings else "")
    # Angle brackets would be taken for markup by whoever prints the name.
    return str(getattr(estimator, "__name__", type(estimator).__name__)).strip("<>")


def label(estimator: Callable[..., Any]) -> str:
    """Return what an estimator is called in a table.

    Parameters
    ----------
    estimator : callable
        A function of evidence.

    Returns
    -------
    str
        The label of its traits; of an undeclared function the first line of its docstring, or else its name.

    Examples
    --------
    >>> label(lambda e: 0.0)
    'lambda'
    """
    return traits_of(estimator).label


def _describe(function: Callable[..., Any]) -> str:
    lines = (getattr(function, "__doc__", None) or "").strip().splitlines()
    return lines[0].rstrip(".") if lines else name_of(function)


def _show_settings(function: functools.partial[Any]) -> str:
    named = (f"{key}={_show(x)}" for key, x in function.keywords.items())
    return ", ".join([*map(_show, function.args), *named])


def _show(x: Any) -> str:
    if isinstance(x, float):
        return f"{x:g}"
    return name_of(x) if callable(x) else " ".join(reprlib.repr(x).split())
