"""The documentation: every page runs and builds without warnings, links work, and nothing is loaded from a network."""

import fcntl
import hashlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import zlib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import pytest
from public_names import NAMES

import minigrad as mg

DOCS = Path(__file__).resolve().parents[2] / "docs"
INSTALLED = all(importlib.util.find_spec(name) for name in ("sphinx", "myst_nb", "furo", "numpydoc"))
REQUIRED = os.environ.get("MINIGRAD_REQUIRE_DOCS", "0") != "0"
pytestmark = [
    pytest.mark.skipif(not DOCS.exists(), reason="no docs beside these tests"),
    pytest.mark.skipif("MINIGRAD_EXPECT_BUILD" in os.environ, reason="the site is built from an ordinary build alone"),
    pytest.mark.skipif(not INSTALLED and not REQUIRED, reason="no Sphinx: pip install '.[docs]'"),
]

# The attributes by which a page loads something, with or without a click.
RESOURCES = {("script", "src"), ("img", "src"), ("img", "srcset"), ("iframe", "src"), ("source", "src"), ("video", "src"),
             ("audio", "src"), ("embed", "src"), ("object", "data"), ("link", "href"), ("use", "href"), ("image", "href")}  # fmt: skip

BRINGS = "%%writefile "  # the beginning of a notebook that includes a file
# The pictures and tables that extend beyond a page and cannot be scrolled.
CUT = """() => [...document.querySelectorAll("article img, article table")].filter((e) => {
  if (e.getBoundingClientRect().right <= innerWidth) return false;
  for (let box = e.parentElement; box.tagName !== "ARTICLE"; box = box.parentElement)
    if (getComputedStyle(box).overflowX === "auto") return false;
  return true;
}).map((e) => e.outerHTML.slice(0, 100))"""

# The printed error messages that are wider than their boxes.
CUT_ERRORS = """() => [...document.querySelectorAll("div.output.stream pre")]
  .filter((e) => e.textContent.includes("Error: ") && e.scrollWidth > e.clientWidth).map((e) => e.textContent)"""
# How many boxes with code or outputs scroll, all of them with a shadow where they do; -1000 for one without.
SHADOWS = """() => [...document.querySelectorAll("div.cell_output, div.output, div.highlight pre")]
  .filter((e) => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX === "auto")
  .reduce((sum, e) => sum + (getComputedStyle(e).backgroundImage.split("gradient").length === 5 ? 1 : -1000), 0)"""


class Page(HTMLParser):
    """Collects the anchors, links and loaded files of a page."""

    def __init__(self, path):
        super().__init__()
        self.anchors, self.links, self.resources, self.styles = set(), [], [], []
        self.in_style = False
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        self.in_style = tag == "style"
        for name, value in attrs:
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value)
            elif name == "style":
                self.styles.append(value)
            elif tag == "a" and name == "href":
                self.links.append(value)
            elif (tag, name.removeprefix("xlink:")) in RESOURCES:
                self.resources.append(value)

    def handle_endtag(self, tag):
        self.in_style = False

    def handle_data(self, text):
        if self.in_style:
            self.styles.append(text)


def everything_that_pages_use():
    """Return a hash of minigrad, the files that pages read, and all installed packages."""
    root, package = DOCS.parent, Path(mg.__file__).parent
    found = hashlib.sha256(sys.version.encode())
    found.update(repr(sorted(f"{d.name} {d.version}" for d in importlib.metadata.distributions())).encode())
    for folder in (package, DOCS, *(root / name for name in ("benchmarks", "cext", "examples", "tests"))):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and "_build" not in path.parts:
                found.update(f"{path.relative_to(folder)} ".encode() + path.read_bytes())
    for path in sorted(root.glob("*")):
        if path.is_file():
            found.update(f"{path.name} ".encode() + path.read_bytes())
    return found.hexdigest()[:24]


def build_site(folder):
    command = [sys.executable, *"-m sphinx -q -T -W --keep-going -b html".split(), DOCS, folder / "html"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    done = subprocess.run(command, env=os.environ | {"PATH": path}, capture_output=True, text=True)
    (folder / "log").write_text(f"{done.returncode}\n{done.stderr}", encoding="utf-8")
    return done.returncode == 0


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Return the folder of the site, built once for all processes that run these tests.

    A site without an error is kept until something that it may depend on changes.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "site"
    folder.mkdir(exist_ok=True)
    kept = DOCS.parent / "build" / "site" / everything_that_pages_use()
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists() and not (folder / "log").exists() and build_site(folder):
            shutil.rmtree(kept.parent, ignore_errors=True)
            shutil.copytree(folder, kept.with_suffix(".part"))
            kept.with_suffix(".part").rename(kept)
    return (kept if kept.exists() else folder) / "html"


@pytest.fixture(scope="module")
def pages(site):
    found = {path: Page(path) for path in sorted(site.rglob("*.html")) if "_static" not in path.parts}
    assert len(found) > 10, "the site was not built: see the test of that"
    return found


def test_every_page_runs_and_builds_without_a_warning(site):
    code, _, said = (site.parent / "log").read_text(encoding="utf-8").partition("\n")
    assert code == "0", said


def test_links_inside_lead_somewhere(site, pages):
    dead = []
    for path, page in pages.items():
        for link in page.links + page.resources:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                dead.append(f"{path.relative_to(site)}: no file for {link}")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                dead.append(f"{path.relative_to(site)}: no anchor for {link}")
    assert not dead, "\n".join(dead)


def test_the_tests_that_pages_name_exist():
    root, dead = DOCS.parent, []
    pages = [*DOCS.rglob("*.md"), *root.glob("*.md")]
    named = {
        name for page in pages for name in re.findall(r"\btests/[\w/]+\.py(?:::\w+)*", page.read_text(encoding="utf-8"))
    }
    for name in named:
        path, *parts = name.split("::")
        text = (root / path).read_text(encoding="utf-8") if (root / path).is_file() else None
        if text is None or not all(re.search(rf"^ *(?:def|class) {part}\b", text, re.MULTILINE) for part in parts):
            dead.append(name)
    assert len(named) > 20
    assert not dead, dead


def test_links_outside_are_well_formed(site, pages):
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme and parts.scheme != "mailto":
                assert re.fullmatch(r"https?://[\w-]+(\.[\w-]+)+(/[^\s<>]*)?", link), (
                    f"{path.relative_to(site)}: {link}"
                )


def test_nothing_is_loaded_from_elsewhere(site, pages):
    """Scripts, styles, fonts and pictures are files of the site, or in the page itself."""
    found = []
    for path, page in pages.items():
        in_styles = [url for style in page.styles for url in re.findall(r"url\(\s*['\"]?([^'\")]+)", style)]
        for address in page.resources + in_styles:
            if urlsplit(address).scheme not in ("", "data") or urlsplit(address).netloc:
                found.append(f"{path.relative_to(site)}: {address}")
    for path in site.rglob("*.css"):
        text = path.read_text(encoding="utf-8")
        for address in re.findall(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)", text):
            if urlsplit("".join(address)).scheme not in ("", "data"):
                found.append(f"{path.relative_to(site)}: {''.join(address)}")
    assert not found, "\n".join(found)


def test_mathematics_comes_from_the_site(site, pages):
    typeset = [page for path, page in pages.items() if 'class="math' in path.read_text(encoding="utf-8")]
    assert typeset
    for page in typeset:
        assert any("mathjax" in address.lower() for address in page.resources)


def public_names():
    """Return the full names of everything that the docstring tests treat as public."""
    for name in NAMES:
        yield f"minigrad.nn.{name}" if name.startswith("functional.") else f"minigrad.{name}"
    packages = [
        importlib.import_module(f"minigrad.{info.name}") for info in pkgutil.iter_modules(mg.__path__) if info.ispkg
    ]
    for module in [*packages, mg.nn.utils, mg.optim.lr_scheduler, mg.optim.swa_utils]:
        for name in getattr(module, "__all__", ()):
            if getattr(mg, name, None) is getattr(module, name):
                continue  # documented under its name in minigrad
            if callable(getattr(module, name)) or inspect.ismodule(getattr(module, name)):
                yield f"{module.__name__}.{name}"
    yield from (f"minigrad.nn.init.{name}" for name in vars(mg.nn.init) if name.endswith("_") and name[0] != "_")
    yield from (f"minigrad.Tensor.{name}" for name in dir(mg.zeros(1)) if not name.startswith("_"))
    yield from (f"minigrad.{name}" for name in ("float32", "float64", "int32", "int64", "bool"))


def test_every_public_name_is_in_the_reference(site):
    inventory = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    entries = [line.split() for line in zlib.decompress(inventory).decode().splitlines()]
    documented = {words[0] for words in entries if words[1].startswith("py:")}
    names = set(public_names())
    assert len(names) > 300
    assert not names - documented, "not in docs/reference/: " + ", ".join(sorted(names - documented))


def test_pages_that_run_are_there_as_notebooks(site, pages):
    import nbformat

    sources = [path for path in DOCS.rglob("*.md") if "file_format: mystnb" in path.read_text(encoding="utf-8")[:200]]
    assert sources
    for source in sources:
        name = source.relative_to(DOCS).with_suffix("")
        target = site / "_notebooks" / name.with_suffix(".ipynb")
        notebook = nbformat.read(target, 4)
        nbformat.validate(notebook)
        cells = [cell for cell in notebook.cells if cell.cell_type == "code" and not cell.source.startswith(BRINGS)]
        assert len(cells) == len(
            re.findall(r"^(?:`{3,}|:{3,})\{code-cell\}", source.read_text(encoding="utf-8"), re.MULTILINE)
        )
        texts = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
        assert not re.findall(r"^(?:`{3,}|:{3,}) *\{.*|\{[\w:]+\}`.*", texts, re.MULTILINE), name
        for cell in cells:
            failed = any(output.output_type == "error" for output in cell.outputs)
            assert not failed or "raises-exception" in cell.metadata.get("tags", ()), cell.source
        assert "site-packages" not in target.read_text(encoding="utf-8"), "a warning of another package"
        page = site / name.with_suffix(".html")
        assert any(cell.outputs for cell in cells) or 'class="cell_output' not in page.read_text(encoding="utf-8")
        assert any((page.parent / unquote(link)).resolve() == target.resolve() for link in pages[page].links)


def test_notebooks_bring_what_they_need_or_say_so(site, tmp_path):
    """A downloaded notebook runs in an empty folder, or states at the beginning that it needs a clone."""
    import nbformat
    from nbclient import NotebookClient

    kinds = {}
    for path in sorted((site / "_notebooks").rglob("*.ipynb")):
        cells = nbformat.read(path, 4).cells
        said = cells[0].cell_type == "markdown" and " of a clone" in cells[0].source
        brought = cells[0].source.startswith(BRINGS)
        code = "\n".join(cell.source for cell in cells[brought:] if cell.cell_type == "code")
        local = [
            name for name in re.findall(r"^(?:from|import) (\w+)", code, re.MULTILINE) if list(DOCS.rglob(f"{name}.py"))
        ]
        assert said or set(local) <= ({"shown"} if brought else set()), f"{path.name} imports {local}"
        assert said or "../.." not in code, f"{path.name} reads the repository"
        if brought:
            assert cells[0].source.partition("\n")[2] == (DOCS / "shown.py").read_text(encoding="utf-8")
        kinds.setdefault("clone" if said else "brought" if brought else "alone", []).append(path)
    assert len(kinds) == 3
    source = next(path for path in kinds["brought"] if path.stem == "kinds")
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(Path(mg.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    }
    NotebookClient(nbformat.read(source, 4), timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute(
        env=environment
    )
    assert [path.name for path in tmp_path.glob("*.py")] == ["shown.py"]


def test_figures_have_no_ground_of_their_own(site):
    """They are shown on light and dark pages, so matplotlib's background is transparent."""
    figures = [path for path in (site / "_images").glob("*.svg") if 'id="figure_1"' in path.read_text(encoding="utf-8")]
    assert len(figures) > 10
    for path in figures:
        patch = re.search(r'<g id="patch_1">\s*<path [^>]*style="([^"]*)"', path.read_text(encoding="utf-8"))
        assert patch is None or "fill: none" in patch[1] or "opacity: 0" in patch[1], f"{path.name}: {patch[1]}"


def test_pages_fit_a_phone_and_ask_nobody(browser, site, pages):
    """In a browser 390 pixels wide, no page scrolls horizontally, and none makes network requests."""
    wide, asked, cut_words, shadows = [], [], [], 0
    tab = browser.new_page(viewport={"width": 390, "height": 844})
    tab.on("request", lambda request: asked.append(request.url) if request.url.startswith("http") else None)
    for path in pages:
        tab.goto(path.as_uri())
        if 'class="math' in path.read_text(encoding="utf-8"):
            tab.wait_for_selector("mjx-container", state="attached")
            tab.evaluate("MathJax.startup.promise")
        width = tab.evaluate("document.documentElement.scrollWidth")
        if width > 390:
            wide.append(f"{path.relative_to(site)}: {width}")
        wide += [f"{path.relative_to(site)}: {cut}" for cut in tab.evaluate(CUT)]
        cut_words += [f"{path.relative_to(site)}: {text}" for text in tab.evaluate(CUT_ERRORS)]
        shadows += tab.evaluate(SHADOWS)
    tab.close()
    assert not wide, "\n".join(wide)
    assert not cut_words, "\n".join(cut_words)
    assert shadows > 0
    assert not asked


@pytest.mark.parametrize(
    "page", ["reference/equations", "reference/pytorch", "reference/tutorials", "reference/promises"]
)
def test_tables_of_sentences_need_no_scrolling_on_a_desktop(browser, site, page):
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    tab.goto((site / page).with_suffix(".html").as_uri())
    boxes = "[...document.querySelectorAll('article table')].map((e) => [e.scrollWidth, e.parentElement.clientWidth])"
    found = tab.evaluate(boxes)
    tab.close()
    assert found
    assert all(inner <= outer + 8 for inner, outer in found), found


def test_search_finds_the_pages(browser, site):
    """Pages whose title has the words of a query come first."""
    expected = {
        "layer norm backward": "kernels/layer_norm.html",
        "layer normalization gradient": "kernels/layer_norm.html",
        "exploding gradients": "autograd/through_time.html",
        "cross entropy": "kernels/cross_entropy.html",
        "attention backward": "kernels/attention.html",
        "attention": "reference/nn_attention.html",
        "custom function": "autograd/own_operation.html",
        "save checkpoint": "start/resume.html",
        "vmap": "reference/autograd.html",
        "confusion matrix": "reference/train.html#minigrad.train.confusion_matrix",
        "no_grad": "reference/autograd.html#minigrad.no_grad",
    }
    found = {}
    tab = browser.new_page()
    for query in (*expected, "eps"):  # Sphinx's own search does not find a word whose stem has two letters
        tab.goto(f"{(site / 'search.html').as_uri()}?q={quote(query)}")
        tab.wait_for_selector("#search-results li a")
        addresses = "[...document.querySelectorAll('#search-results li a')].map((a) => a.getAttribute('href'))"
        found[query] = [re.sub(r"\?[^#]*", "", address) for address in tab.evaluate(addresses)][:5]
    tab.close()
    assert {query: page for query, page in expected.items() if page not in found[query][:2]} == {}, found
    assert "reference/operations.html" in found["eps"]


def test_code_can_be_copied(browser, site):
    """A button copies a cell's code, and an example without its prompts and outputs; outputs have none."""
    tab = browser.new_page()
    tab.goto((site / "index.html").as_uri())
    assert tab.locator(".cell_input button.copybtn").count() == tab.locator(".cell_input").count() > 0
    assert tab.locator(".cell_output button.copybtn").count() == 0
    tab.goto((site / "reference" / "reductions.html").as_uri())
    tab.evaluate("addEventListener('copy', () => { window.copied = document.activeElement.value; })")
    example = tab.locator("div.highlight:has(.gp):has(.go)").first
    example.hover()
    example.locator("button.copybtn").click()
    shown, copied = example.inner_text(), tab.evaluate("window.copied")
    tab.close()
    lines = [line[4:] for line in shown.splitlines() if line.startswith((">>> ", "... "))]
    assert copied == "\n".join(lines) + "\n"
