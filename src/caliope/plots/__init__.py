"""Figures of results: each function draws on an axis and computes no number of its own. Needs the extra ``report``.

There is no global state: make a figure with :func:`panels`, draw on its axes, and write it with :func:`svg`. The bytes
depend only on what is drawn.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
