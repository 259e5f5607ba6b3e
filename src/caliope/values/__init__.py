"""Values of states and actions under a policy: fitted Q, linear solutions, marginalised weights."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
