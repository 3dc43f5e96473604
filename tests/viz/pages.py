"""Reading back the page of a tape."""

import json
import re

import numpy as np


def content(page):
    """Return the JSON in a page, parsed as strictly as in a browser."""
    (text,) = re.findall(r'<script type="application/json" id="tape">(.*?)</script>', page.html, re.DOTALL)

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


def shown(page):
    """Return op -> entry of a page, with tensors in place of their numbers, without the steps inside layers."""
    found = content(page)

    def look(numbers):
        return None if numbers is None else [None if n is None else found["tensors"][n] for n in numbers]

    for entry in found["entries"]:
        for name in ("outs", "grads", "saved", "read"):
            entry[name] = look(entry[name])
    return {entry["name"] or entry["op"]: entry for entry in found["entries"] if entry["parent"] is None}


def inside(page):
    """Return the inputs and the time steps of a recurrent layer by name, the steps as name -> value and gradient."""
    found = content(page)

    def look(n):
        return None if n is None else found["tensors"][n]

    inputs = {
        e["name"]: (look(e["outs"][0]), look(e["grads"][0])) for e in found["entries"] if e["leaf"] and e["parent"]
    }
    steps = [e for e in found["entries"] if "made" in e]
    return inputs, [{name: (look(x), look(g)) for name, x, g in e["given"] + e["made"]} for e in steps]


def numbers(tensor):
    return np.asarray(tensor["numbers"])


def values(tensor):
    """Return the first numbers shown of a tensor, small or large."""
    return np.ravel(tensor["numbers"] if "numbers" in tensor else tensor["first"])


def first_numbers(x):
    return x.detach().numpy().ravel()[:8]
