"""Every page that was run is also there as a notebook with its outputs; `notebook` is its address for the template."""

from pathlib import Path

import nbformat


def tidy(notebook):
    """MyST-NB joins the printed texts of a cell in the first of them, and leaves the others behind."""
    for cell in notebook.cells:
        seen = set()
        for output in list(cell.get("outputs", ())):
            if output.output_type == "stream":
                if output.name in seen:
                    cell.outputs.remove(output)
                seen.add(output.name)
    return notebook


def add_notebook(app, page, template, context, doctree):
    """Put the notebook that MyST-NB left behind into the site."""
    executed = Path(app.env.mystnb_config.output_folder, f"{page}.ipynb")
    if doctree is not None and page in getattr(app.env, "nb_metadata", {}) and executed.exists():
        target = Path(app.outdir, "_notebooks", f"{page}.ipynb")
        target.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(tidy(nbformat.read(executed, 4)), target)
        context["notebook"] = context["pathto"](f"_notebooks/{page}.ipynb", 1)


def setup(app):
    app.connect("html-page-context", add_notebook)
    return {"parallel_read_safe": True, "parallel_write_safe": True, "version": "1"}
