"""python -m fuzz [--seconds S | --programs N] [--seed FIRST] [--only PATTERN] [--without PATTERN] [--show]: see `fuzz`.

Exit status 1 if anything was found.
"""

import argparse
import ast
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fuzz.lines import called, depended_upon

HERE = Path(__file__).parent
BATCH = 60  # programs per process
HANG = 60  # seconds without progress: of computing, or of waiting
SHRINKING = 60  # seconds per finding


def child(arguments, pattern, source=None):
    """Run programs in a process of their own: ([{"seed", "lines", "digests", "findings"}], what ended it or None)."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(HERE.parent), os.environ.get("PYTHONPATH")])),
        "PYTHONHASHSEED": "0",
        "PYTHONMALLOC": "debug",
        # Every block comes from the C library and goes back there, which fills it with `pattern` when it is freed, and
        # with the complement when it is allocated. Threads share two arenas: each arena reserves 64 MB of the limited
        # address space.
        "MINIGRAD_CACHE_LIMIT": "0",
        "GLIBC_TUNABLES": f"glibc.malloc.tcache_count=0:glibc.malloc.perturb={pattern}:glibc.malloc.arena_max=2",
    }
    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder, "journal")
        command = [sys.executable, "-m", "fuzz.child", str(journal), *map(str, arguments)]
        hung = False
        with open(Path(folder, "errors"), "w+", errors="replace") as errors:
            process = subprocess.Popen(
                command, env=environment, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors,
                text=True,
            )  # fmt: skip
            process.stdin.write(source or "")
            process.stdin.close()
            size, since, spent = (
                -1,
                0.0,
                0.0,
            )  # the journal's size, when it last grew, and the seconds computed until then
            while process.returncode is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(1)
                    break
                now, computed = time.monotonic(), seconds_of(process.pid)
                length = journal.stat().st_size if journal.exists() else 0
                if length != size or not length:
                    size, since, spent = length, now, computed
                # On a busy machine a long computation takes long; a thread that waits computes nothing.
                elif computed - spent > HANG or (now - since > HANG and computed - spent < HANG / 30):
                    hung = True
                    process.send_signal(signal.SIGABRT)  # Python shows where it is
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(5)
                    process.kill()
                    process.wait()
            errors.seek(0)
            output = errors.read()
        programs = []
        for text in journal.read_text().splitlines() if journal.exists() else []:
            entry = json.loads(text)
            if "seed" in entry:
                programs.append({"seed": entry["seed"], "lines": [], "outcomes": [], "findings": [], "done": True})
            elif "line" in entry:
                programs[-1]["lines"].append(entry["line"])
                programs[-1]["outcomes"].append(None)
            elif "finding" in entry:
                programs[-1]["findings"].append((entry["finding"], entry["text"], len(programs[-1]["lines"])))
            elif "done" not in entry:
                programs[-1]["outcomes"][-1] = entry.get("digest", entry.get("raised"))
    code = process.returncode
    if code:
        if not programs or not programs[-1]["lines"]:
            raise RuntimeError(f"the fuzzer itself failed:\n{output[-3000:]}")
        kind = "hang" if hung else signal.Signals(-code).name if code < 0 else f"exit {code}"
        programs[-1]["findings"].append((f"{kind} {called(programs[-1]['lines'][-1])}", output[:2500], None))
        programs[-1]["done"] = False
    return programs


def seconds_of(pid):
    """Return the seconds that a process has computed; where there is no /proc, the time of day."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return time.monotonic()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def examine(arguments, source=None):
    """Run programs under both patterns; a program whose results differ has read uninitialized memory."""
    first = child(arguments, 0xAB, source)
    if not first[-1]["done"]:
        return first
    second = child(arguments, 0x5C, source)
    for a, b in zip(first, second, strict=False):
        known = {key for key, *_ in a["findings"]}
        a["findings"] += [finding for finding in b["findings"] if finding[0] not in known]
        for k, (line, other, x, y) in enumerate(
            zip(a["lines"], b["lines"], a["outcomes"], b["outcomes"], strict=False)
        ):
            if "together" in line or line != other:
                break  # threads are scheduled differently
            if "MemoryError" in (x, y):
                break  # the amount of memory depends on the machine
            if x != y and None not in (x, y):
                text = f"{line}: {x} and {y} for other contents of memory that was not written"
                a["findings"].append((f"differs {called(line)}", text, k + 1))
                break
    return first


def shrink(lines, key, seconds):
    """Return the fewest lines that still show it, by leaving out ever smaller parts, and whether a replay showed it."""
    if not seconds:
        return lines, True
    end = time.monotonic() + seconds

    def shows(candidate):
        try:
            found = (examine if "differs" in key else lambda a, s: child(a, 0xAB, s))(["lines"], "\n".join(candidate))
        except RuntimeError:
            return False
        return any(known == key for program in found for known, *_ in program["findings"])

    needed = depended_upon(lines)
    if len(needed) < len(lines) and shows(needed):
        lines = needed
    elif not shows(lines):
        return lines, False
    size = len(lines) // 2
    while size and time.monotonic() < end:
        k = len(lines) - size
        while k > -size and time.monotonic() < end:
            candidate = lines[: max(k, 0)] + lines[k + size :]
            if candidate and shows(candidate):
                lines = candidate
            k -= size
        size //= 2
    return lines, True


def script(lines):
    """Return a standalone program: the lines, and the parts of `helpers` they use."""
    source = (HERE / "helpers.py").read_text()
    definitions, imports = {}, []
    for node in ast.parse(source).body:
        text = ast.get_source_segment(source, node)
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            imports.append((text, [name.asname or name.name for name in node.names]))
        elif hasattr(node, "name"):
            definitions[node.name] = text
        elif isinstance(node, ast.Assign):
            definitions[node.targets[0].id] = text
    used, text = [], "\n".join(lines)
    while new := [name for name in definitions if name not in used and re.search(rf"\b{name}\b", text)]:
        used += new
        text += "".join(definitions[name] for name in new)
    parts = [definitions[name] for name in definitions if name in used]
    calls = [f"with suppress(BaseException):\n    {line}" for line in lines if not line.startswith("pass")]
    needed = [line for line, names in imports if re.search(rf"\b({'|'.join(names)})\b", text)]
    return "\n".join([*needed, "from contextlib import suppress", *parts, *calls])


def fuzz(seed=0, seconds=None, programs=None, only="", without="", shrinking=SHRINKING, log=print):
    """Run programs until the time or their number is exhausted, and return {key of a finding: script}."""
    found, ran, calls, good, start = {}, 0, 0, 0, time.monotonic()
    while (programs is None or ran < programs) and (seconds is None or time.monotonic() - start < seconds):
        count = min(BATCH, programs - ran) if programs else BATCH
        done = examine([seed + ran, count, only, without])
        ran += len(done)
        for program in done:
            calls += len(program["outcomes"])
            good += sum(not isinstance(outcome, str) for outcome in program["outcomes"])
            for key, text, end in program["findings"]:
                if key in found:
                    continue
                lines, again = shrink(program["lines"][:end], key, shrinking)
                found[key] = script(lines)
                note = "" if again else "  (not seen again when replayed alone)"
                log(f"\n=== {key}, seed {program['seed']}{note}\n{text}\n--- reproduction\n{found[key]}", flush=True)
    log(
        f"\n{ran} programs, {calls} lines, {good / max(calls, 1):.0%} without an exception, {len(found)} findings",
        flush=True,
    )
    return found


def main():
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(10**9), help="of the first program")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--programs", type=int)
    parser.add_argument("--only", default="", help="call functions of these names alone (a pattern)")
    parser.add_argument(
        "--without", default="", help="leave out lines with this pattern: those that fail in a known way"
    )
    parser.add_argument("--show", action="store_true", help="print the program of the seed")
    options = parser.parse_args()
    if options.show:
        print(script(child([options.seed, 1, options.only, options.without], 0xAB)[0]["lines"]))
        return 0
    with contextlib.suppress(KeyboardInterrupt):
        return bool(
            fuzz(
                options.seed,
                None if options.programs else options.seconds,
                options.programs,
                options.only,
                options.without,
            )
        )


if __name__ == "__main__":
    sys.exit(main())
