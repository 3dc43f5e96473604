"""Every page that was run is also there as a notebook with its outputs; `notebook` is its address for the template."""

from pathlib import Path

import nbformat
from jupyter_cache import get_cache


def add_notebook(app, page, template, context, doctree):
    """Put the notebook into the site: the cells that MyST-NB left behind, and the outputs that its cache holds."""
    cells = Path(app.env.mystnb_config.output_folder, f"{page}.ipynb")
    if doctree is not None and page in getattr(app.env, "nb_metadata", {}) and cells.exists():
        cache = get_cache(app.env.mystnb_config.execution_cache_path)
        _, notebook = cache.merge_match_into_notebook(nbformat.read(cells, 4))
        target = Path(app.outdir, "_notebooks", f"{page}.ipynb")
        target.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, target)
        context["notebook"] = context["pathto"](f"_notebooks/{page}.ipynb", 1)


def setup(app):
    app.connect("html-page-context", add_notebook)
    return {"parallel_read_safe": True, "parallel_write_safe": True, "version": "1"}
