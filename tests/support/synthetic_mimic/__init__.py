"""Synthetic MIMIC-III and MIMIC-IV databases with known hidden states and decisions, for tests and benchmarks."""

from support.synthetic_mimic.generate import generate_mimic3, generate_mimic4
from support.synthetic_mimic.stays import Hospital

__all__ = ["Hospital", "generate_mimic3", "generate_mimic4"]
