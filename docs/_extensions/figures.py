"""Load the scripts of the figures that a page holds: `<div data-figure="name">` loads `_static/figures/name.js`."""

import re


def add_scripts(app, page, template, context, doctree):
    names = sorted(set(re.findall(r'<div data-figure="(\w+)">', context.get("body", ""))))
    for name in ["shared", *names] if names else ():
        app.add_js_file(f"figures/{name}.js", loading_method="defer")
    if names:
        app.add_css_file("figures/figures.css")


def setup(app):
    app.connect("html-page-context", add_scripts)
    return {"parallel_read_safe": True, "parallel_write_safe": True, "version": "1"}
