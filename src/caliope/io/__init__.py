"""Logged data from where it lies to Trajectories."""

from caliope.io.tables import read_table

__all__ = ["read_table"]
