"""What stands on a page of a tape, read back."""

import json
import re

import numpy as np


def content(page):
    """The JSON that a page carries, read as strictly as a browser does."""
    (text,) = re.findall(r'<script type="application/json" id="tape">(.*?)</script>', page.html, re.DOTALL)

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


def shown(page):
    """op -> entry of a page, with the tensors in the place of their numbers."""
    found = content(page)

    def look(numbers):
        return None if numbers is None else [None if n is None else found["tensors"][n] for n in numbers]

    for entry in found["entries"]:
        for name in ("outs", "grads", "saved", "read"):
            entry[name] = look(entry[name])
    return {entry["name"] or entry["op"]: entry for entry in found["entries"]}


def numbers(tensor):
    return np.asarray(tensor["numbers"])


def values(tensor):
    """The first numbers of what is shown of a tensor, small or large."""
    return np.ravel(tensor["numbers"] if "numbers" in tensor else tensor["first"])


def first_numbers(x):
    return x.detach().numpy().ravel()[:8]
