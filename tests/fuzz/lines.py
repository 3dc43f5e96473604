"""Static analysis of a line."""

import re


def called(line):
    """Return the function that a line calls."""
    found = re.findall(r"[\w.]+(?=\()", line.split(" = ")[-1])
    return re.sub(r"^v\d+", "", found[0]) if found else line[:30]


def depended_upon(lines):
    """Return the last line with an effect, and those that created its variables."""
    lines = [line for line in lines if not line.startswith("pass")]
    found, names = lines[-1:], set(re.findall(r"\bv\d+\b", lines[-1]))
    for line in reversed(lines[:-1]):
        target = re.search(r"\b(v\d+) = ", line)
        if target and target[1] in names:
            found.insert(0, line)
            names |= set(re.findall(r"\bv\d+\b", line))
    return found
