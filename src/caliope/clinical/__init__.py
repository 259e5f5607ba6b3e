"""The sepsis cohort from MIMIC-III or MIMIC-IV, and sepsis cohorts made by others. Needs the extra ``clinical``."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
