"""Models of the behaviour policy: how they are fitted."""

from caliope.behaviour.fitting import FittedBehaviour, fit_behaviour

__all__ = ["FittedBehaviour", "fit_behaviour"]
