"""Modules as HTML, for notebooks."""

import html
from typing import Any


def module_as_html(module: Any, name: str = "") -> str:
    """A module with its parameters and submodules, as a collapsible tree."""
    own = list(module.named_parameters(recurse=False))
    total = sum(parameter.size for parameter in module.parameters())
    label = f"({name}): " if name else ""
    head = f"{html.escape(label)}<b>{html.escape(type(module).__name__)}</b>({html.escape(module.extra_repr())})"
    head += f'<span style="opacity:0.65"> {total:,} parameters</span>' if total else ""
    inside = [
        f"<div>{html.escape(key)}: {x.dtype} {x.shape}{'' if x.requires_grad else ', frozen'}</div>" for key, x in own
    ]
    inside += [module_as_html(child, key) for key, child in module.named_children()]
    block = "font-family:monospace;font-size:0.9em;line-height:1.5" if not name else "margin-left:1.5em"
    if not inside:
        return f'<div style="{block}">{head}</div>'
    body = f'<div style="margin-left:1.5em">{"".join(inside)}</div>' if own else "".join(inside)
    fold = "" if own and not any(module.children()) else " open"  # layers start collapsed
    return f'<details style="{block}"{fold}><summary>{head}</summary>{body}</details>'
