"""Offer every executed page as a notebook with its outputs; `notebook` is its address in the template."""

import re
from pathlib import Path, PurePosixPath

import nbformat
import yaml
from sphinx.directives.code import LiteralIncludeReader

DOCS = Path(__file__).parent.parent
BROUGHT = re.compile(r"^(?:from|import) (shown)\b", re.MULTILINE)  # depends on no other file of docs/
# Pages that match read files of the repository.
READ = re.compile(r"^(?:from|import) (?:results|ladder)\b|[\"']\.\./\.\.", re.MULTILINE)
FENCE = re.compile(r"^(`{3,}|:{3,}) *\{([\w-]+)\} *(.*)\n((?:.*\n)*?)\1 *$", re.MULTILINE)
OPTION = re.compile(r"^:([\w-]+):(.*)$", re.MULTILINE)
CLONE = "This notebook reads files of minigrad's repository: run it in the folder `{}` of a clone."


def noted(notebook, page):
    """Prepend what the notebook needs: a cell that writes the shared file, or a note that it needs a clone."""
    code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    if READ.search(code):
        cell = nbformat.v4.new_markdown_cell(CLONE.format(PurePosixPath("docs", page).parent))
    elif needed := BROUGHT.search(code):
        text = (DOCS / f"{needed[1]}.py").read_text(encoding="utf-8")
        cell = nbformat.v4.new_code_cell(f"%%writefile {needed[1]}.py\n{text}")
    else:
        return notebook
    notebook.cells.insert(0, cell)
    return notebook


def tidy(notebook):
    """Drop duplicate streams: MyST-NB joins a cell's printed texts in the first of them but keeps the others."""
    for cell in notebook.cells:
        seen = set()
        for output in list(cell.get("outputs", ())):
            if output.output_type == "stream":
                if output.name in seen:
                    cell.outputs.remove(output)
                seen.add(output.name)
    return notebook


def plain(text, folder, config):
    """Return a text cell without the markup of MyST: excerpts as code, answers as quotations, names as code."""

    def without_fence(found):
        _, name, argument, body = found.groups()
        if name == "literalinclude":
            options = yaml.safe_load(OPTION.sub(r"\1: \2", body))
            options |= {"lines": str(options["lines"])} if "lines" in options else {}
            excerpt, _ = LiteralIncludeReader(str(folder / argument), options, config).read()
            return f"```{options.get('language', '')}\n{excerpt}```"
        if name == "admonition":
            lines = f"**{argument}**\n\n{OPTION.sub('', body).strip()}".splitlines()
            return "\n".join(f"> {line}" for line in lines)
        return body if name == "raw" else ""

    return re.sub(r"\{[\w:]+\}(`[^`]+`)", r"\1", FENCE.sub(without_fence, f"{text}\n"))


def add_notebook(app, page, template, context, doctree):
    """Put the notebook that MyST-NB wrote into the site."""
    executed = Path(app.env.mystnb_config.output_folder, f"{page}.ipynb")
    if doctree is not None and page in getattr(app.env, "nb_metadata", {}) and executed.exists():
        target = Path(app.outdir, "_notebooks", f"{page}.ipynb")
        target.parent.mkdir(parents=True, exist_ok=True)
        notebook = tidy(nbformat.read(executed, 4))
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                cell.source = plain(cell.source, (DOCS / page).parent, app.config)
        nbformat.write(noted(notebook, page), target)
        context["notebook"] = context["pathto"](f"_notebooks/{page}.ipynb", 1)


def setup(app):
    app.connect("html-page-context", add_notebook)
    return {"parallel_read_safe": True, "parallel_write_safe": True, "version": "1"}
