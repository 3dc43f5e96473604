"""Sphinx configuration; every page with code is a Markdown notebook that is executed when the site is built."""

import os
import re
import sys
from pathlib import Path

import minigrad

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "minigrad"
author = "The minigrad authors"
copyright = "The minigrad authors"
version = release = minigrad.__version__

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx-mathjax-offline",  # MathJax is part of the site, which can be read offline
    "sphinx_copybutton",
    "sphinxext.opengraph",
    "api",
    "figures",
    "notebooks",
    "outputs",
]
exclude_patterns = ["_build"]
templates_path = ["_templates"]
nitpicky = True
# Of other packages' names, only functions of NumPy and PyTorch are links: see _extensions/api.py.
nitpick_ignore_regex = [(r"py:.*", r"(?!minigrad\.).*")]

html_theme = "furo"
html_title = f"minigrad {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_logo = html_favicon = "_static/logo.svg"
html_show_copyright = html_show_sphinx = False
html_copy_source = False
html_search_scorer = str(Path(__file__).parent / "_static" / "search.js")
html_theme_options = {"top_of_page_buttons": []}
pygments_style, pygments_dark_style = "friendly", "github-dark"

# Code can be copied without its prompts and outputs.
copybutton_selector = "div.highlight:not(.cell_output *) pre"
copybutton_exclude = ".linenos, .gp, .go"

# Whoever links to a page shows its title, its first words and a picture. Their addresses have to be absolute.
ogp_site_url = os.environ.get("MINIGRAD_SITE_URL", "")
ogp_image = "_static/explore.png" if ogp_site_url else None
ogp_social_cards = {"enable": False}  # one picture for all pages

# A cell that fails stops the build. Each page runs in its own process, in its own folder.
nb_execution_mode = "force"  # what a page shows depends on more than its own text
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_merge_streams = True
nb_render_markdown_format = "myst"  # for tables and mathematics in the output of cells
myst_enable_extensions = ["dollarmath", "amsmath", "deflist", "colon_fence"]
myst_heading_anchors = 3

# _extensions/api.py makes the signatures and links of the reference. `x` in a docstring is a name or a parameter.
default_role = "py:obj"
python_use_unqualified_type_names = True
maximum_signature_line_length = 88
autodoc_inherit_docstrings = False
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
numpydoc_validation_checks = {
    "GL05", "GL06", "GL07", "GL08", "GL09", "GL10", "PR02", "PR05", "PR10", "RT05", "SS01", "SS03",
}  # fmt: skip
numpydoc_validation_exclude = {r"\.__init__$"}


def end_before_formulas(app, page, template, context, doctree):
    """Let the description of a page end with the sentence before its first formula, which would be LaTeX there."""
    context["metatags"] = re.sub(r'(content="[^"\\]*\.)[^".\\]*\\[^"]*"', r'\1"', context.get("metatags", ""))


def setup(app):
    app.connect("html-page-context", end_before_formulas, priority=900)  # after the extension that writes it
