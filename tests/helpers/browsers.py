"""Headless Chromium, for the tests of pages."""

import importlib.util
import os
import shutil

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)


def no_browser():
    """Return what is missing for tests in a browser, or None; raise if MINIGRAD_REQUIRE_BROWSER requires them."""
    missing = None if BROWSER else "Chromium on the path"
    if importlib.util.find_spec("playwright") is None:
        missing = "the Python package playwright"
    if missing and os.environ.get("MINIGRAD_REQUIRE_BROWSER", "0") != "0":
        raise RuntimeError(f"MINIGRAD_REQUIRE_BROWSER is set, but there is not {missing}")
    return missing


def start_browser(driver):
    """Start headless Chromium, without the library that a sanitizer preloads."""
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    return driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"], env=environment)


def open_tab(browser, address, troubles, width=1400, height=900, dark=False, **options):
    """Open a page in a context of its own; `troubles` collects errors of its script and requests to a network."""
    scheme = "dark" if dark else "light"
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, **options)
    tab = context.new_page()

    def request(made):
        if not made.url.startswith(("file:", "about:", "data:")):
            troubles.append(made.url)

    tab.on("pageerror", lambda error: troubles.append(str(error)))
    tab.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)
    tab.on("request", request)
    tab.goto(address)
    return tab
