"""Where the work on a log in partitions is done: on this machine, or on a cluster of Dask."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
