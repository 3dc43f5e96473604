"""The documentation: every page with code is a notebook in Markdown that is run when the site is built."""

import minigrad

project = "minigrad"
author = "The minigrad authors"
copyright = "The minigrad authors"
version = release = minigrad.__version__

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx-mathjax-offline",  # mathematics from files of the site: it can be read without a network
]
exclude_patterns = ["_build"]
nitpicky = True

html_theme = "furo"
html_title = f"minigrad {release}"

# A cell that fails stops the build. Each page runs in its own process, in the folder where it stands.
nb_execution_mode = "force"  # what a page shows depends on more than its own text
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_merge_streams = True
nb_render_markdown_format = "myst"  # tables and mathematics in what a cell prints
myst_enable_extensions = ["dollarmath", "amsmath", "deflist", "colon_fence"]
myst_heading_anchors = 3

numpydoc_show_class_members = False
autosummary_generate = True
