"""Pages with figures, built and opened in a browser."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from browsers import open_tab
from figure_pages import FIGURES, SHOW
from test_site import DOCS


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The pages with figures and one without, built by the site's configuration, without running their cells."""
    folder = tmp_path_factory.mktemp("figures")
    for page in (*FIGURES.values(), Path("index"), Path("start/index")):
        (folder / "src" / page).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(DOCS / page.with_suffix(".md"), folder / "src" / page.with_suffix(".md"))
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", "-c", DOCS, "-D", "nb_execution_mode=off"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    built = subprocess.run(
        [*command, folder / "src", folder / "html"], env=os.environ | {"PATH": path}, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    return folder / "html"


@pytest.fixture(scope="module")
def pages(browser, site):
    """Open the page of a figure, once for all tests; return it and the list of its troubles."""
    tabs, troubles = {}, []

    def page(name, scripts):
        if (name, scripts) not in tabs:
            address = (site / FIGURES[name]).with_suffix(".html").as_uri()
            tabs[name, scripts] = open_tab(browser, address, troubles, java_script_enabled=scripts)
            tabs[name, scripts].set_default_timeout(5000)
        return tabs[name, scripts], troubles

    yield page
    for tab in tabs.values():
        tab.context.close()


@pytest.fixture
def visit(pages):
    """Show a figure as a page shows it at first; errors of its script and network requests fail the test."""
    found = []

    def show(name, scripts=True, width=1280, dark=False, theme="auto"):
        tab, troubles = pages(name, scripts)
        found.append(troubles)
        tab.set_viewport_size({"width": width, "height": 844})
        tab.emulate_media(color_scheme="dark" if dark else "light")
        if scripts:
            tab.wait_for_selector("[data-figure].live")
            tab.evaluate(SHOW, [name, theme])
        return tab

    yield show
    assert not any(found)
