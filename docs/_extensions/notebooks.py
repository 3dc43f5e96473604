"""Every page that was run is also there as a notebook with its outputs; `notebook` is its address for the template."""

import shutil
from pathlib import Path


def add_notebook(app, page, template, context, doctree):
    """Copy the notebook that MyST-NB left behind into the site."""
    executed = Path(app.env.mystnb_config.output_folder, f"{page}.ipynb")
    if doctree is not None and page in getattr(app.env, "nb_metadata", {}) and executed.exists():
        target = Path(app.outdir, "_notebooks", f"{page}.ipynb")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(executed, target)
        context["notebook"] = context["pathto"](f"_notebooks/{page}.ipynb", 1)


def setup(app):
    app.connect("html-page-context", add_notebook)
    return {"parallel_read_safe": True, "parallel_write_safe": True, "version": "1"}
