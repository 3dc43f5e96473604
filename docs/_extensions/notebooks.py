"""Every page that was run is also there as a notebook with its outputs; `notebook` is its address for the template."""

import re
from pathlib import Path, PurePosixPath

import nbformat

SHARED = re.compile(r"^(?:from|import) (shown|ladder)\b", re.MULTILINE)  # files of docs/ that pages share
NOTE = "This notebook imports `{}`, a file of `docs/` in minigrad's repository: run it in the folder `{}` of a clone."


def noted(notebook, page):
    """With a word, before all else, on the file it needs beside it, if it needs one."""
    needed = SHARED.search("\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code"))
    if needed:
        text = NOTE.format(needed[1], PurePosixPath("docs", page).parent)
        notebook.cells.insert(0, nbformat.v4.new_markdown_cell(text))
    return notebook


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
        nbformat.write(noted(tidy(nbformat.read(executed, 4)), page), target)
        context["notebook"] = context["pathto"](f"_notebooks/{page}.ipynb", 1)


def setup(app):
    app.connect("html-page-context", add_notebook)
    return {"parallel_read_safe": True, "parallel_write_safe": True, "version": "1"}
