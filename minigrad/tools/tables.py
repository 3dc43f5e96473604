"""Tables, as text and as HTML, which display the tape, summaries and profiles."""

import html
from collections.abc import Sequence

STYLE = "border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:0.9em"
RULE = "1px solid color-mix(in srgb, currentColor 30%, transparent)"
FAINT = "1px solid color-mix(in srgb, currentColor 12%, transparent)"


def as_text(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Format columns two spaces apart, right-aligning those in `right`. A row of one cell is printed as it is."""
    whole = [row for row in [head, *rows] if len(row) > 1]
    widths = [max(len(row[k]) for row in whole) for k in range(len(head))]
    lines = [
        "  ".join(
            cell.rjust(width) if k in right else cell.ljust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=len(row) > 1))
        )
        for row in [head, *rows]
    ]
    return "\n".join(line.rstrip() for line in lines)


def as_html(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = (), note: str = "") -> str:
    """Format the same as an HTML table that takes its colors from the page, with a `note` below it.

    Cells do not wrap; a table that is too wide can be scrolled.
    """

    def line(row: Sequence[str], tag: str, rule: str) -> str:
        if len(row) == 1:
            style = f"text-align:left;padding:0.7em 0.6em 0.2em;border-bottom:{RULE}"
            return f'<tr><th colspan="{len(head)}" style="{style}">{html.escape(row[0])}</th></tr>'
        cells = []
        for k, cell in enumerate(row):
            style = f"text-align:{'right' if k in right else 'left'};padding:0.15em 0.6em;border-bottom:{rule}"
            style += ";white-space:nowrap"
            cells.append(f'<{tag} style="{style}">{html.escape(cell)}</{tag}>')
        return f"<tr>{''.join(cells)}</tr>"

    body = "".join(line(row, "td", FAINT) for row in rows)
    table = f'<table style="{STYLE}"><thead>{line(head, "th", RULE)}</thead><tbody>{body}</tbody></table>'
    below = f'<div style="opacity:0.75;font-size:0.85em">{html.escape(note)}</div>' if note else ""
    return f'<div style="overflow-x:auto">{table}{below}</div>'
