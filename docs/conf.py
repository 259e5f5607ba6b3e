"""Sphinx configuration: ``make docs`` builds the site from a clean clone, without the network."""

import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

import caliope

project = "Caliope"
author = "The Caliope developers"
copyright = "The Caliope developers"
release = version = caliope.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
    "sphinx_design",
    "sphinx_copybutton",
    # Ours, in _ext: pages that are executed, pages that are made from the package, and formulas.
    "executed_pages",
    "generated_pages",
    "mathml",
]
exclude_patterns = [
    "_build",
    "_templates",
    "**/sg_execution_times.rst",
    "sg_execution_times.rst",
]
templates_path = ["_templates"]

# -- every cross-reference must lead somewhere --
nitpicky = True
nitpick_ignore_regex = [
    ("py:.*", r"(numpy|np|matplotlib|polars|sklearn|pathlib|collections)\..*")
]

# -- the API, from numpydoc docstrings --
autodoc_typehints = "none"
autodoc_preserve_defaults = True
# What scikit-learn adds to its estimators.
_ADDED = "set_fit_request set_score_request set_predict_request set_predict_proba_request set_transform_request"
autodoc_default_options = {
    "exclude-members": f"{_ADDED.replace(' ', ', ')}, get_metadata_routing"
}
numpydoc_show_class_members = False
numpydoc_attributes_as_param_list = True
toc_object_entries_show_parents = "hide"
smartquotes = False  # "same" is a string

# -- Markdown, with the links of GitHub --
myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4

myst_heading_slug_func = "generated_pages.slug_of"

# -- the gallery --
# A process that has grown is replaced; no example is lost by it.
warnings.filterwarnings("ignore", message="A worker stopped while some jobs")
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "ignore_pattern": r"(^|/)shop\.py",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "only_warn_on_example_error": False,
    "min_reported_time": 1e9,
    "thumbnail_size": (640, 360),
    "show_memory": False,
    "show_signature": False,
    "download_all_examples": False,
    "remove_config_comments": True,
    "parallel": 2,
    "capture_repr": (),
    "backreferences_dir": None,
    "doc_module": ("caliope",),
}

# -- what it looks like --
html_math_renderer = "mathml"
html_theme = "pydata_sphinx_theme"
html_title = "Caliope"
html_static_path = ["_static"]
html_css_files = ["caliope.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "pygments_light_style": "tango",
    "pygments_dark_style": "github-dark",
}
html_sidebars = {"index": []}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_exclude = ".linenos, .gp, .go"
copybutton_selector = "div:not(.output) > div.highlight > pre"
