"""Simulated domains with a known truth: logs, and the exact value of any policy in them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
