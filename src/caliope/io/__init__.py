"""Logged data from where it lies to Trajectories."""

from caliope.io.datasets import read_d3rlpy, read_minari, read_obp
from caliope.io.tables import read_table

__all__ = ["read_d3rlpy", "read_minari", "read_obp", "read_table"]
