"""The report: an audit as one self-contained HTML page, with its numbers as JSON beside it."""

import lazy_loader

# The numbers alone need neither matplotlib nor jinja2, which come with the extra "report".
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
