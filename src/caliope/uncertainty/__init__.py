"""Uncertainty of any estimator: bootstrap, jackknife, delta method, paired differences, refits, resampled error."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
