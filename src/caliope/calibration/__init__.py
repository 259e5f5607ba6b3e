"""Calibration: is the behaviour model honest? Every number beside what it would be if it were."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
