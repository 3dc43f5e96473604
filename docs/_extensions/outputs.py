"""Tell printed sentences, which may be wrapped, from printed tables, which may not."""

import re

from docutils import nodes

COLUMNS = re.compile(r"\S {2,}\S")  # aligned by spaces


def mark_sentences(app, doctree, page):
    """Give printed output without columns, and error messages, the class `sentences`, see site.css."""
    for block in doctree.findall(nodes.literal_block):
        text = block.astext()
        if "output" in block["classes"] and ("Error: " in text or not COLUMNS.search(text)):
            block["classes"].append("sentences")


def setup(app):
    app.connect("doctree-resolved", mark_sentences)
    return {"parallel_read_safe": True, "parallel_write_safe": True, "version": "1"}
