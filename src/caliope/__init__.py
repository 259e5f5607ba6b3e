"""Calibrated off-policy evaluation when nobody wrote down the probabilities."""

from caliope.trajectories import Trajectories

__all__ = ["Trajectories"]
