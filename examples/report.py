"""Run every experiment and write the results to one page: figures, tables, and common claims about normalization.

``mpiexec -n 5 python -m mpi4py.futures report.py`` trains the seeds of all experiments in four processes; the first
writes the page, with the same results.
"""

import argparse
import ast
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from minigrad import get_num_threads

EXPERIMENTS = (
    "lenet_batch_sizes", "mlp_batch_sizes", "conv_norms", "small_batches", "online", "shift_and_saturation",
    "smoothness", "recurrent_dynamics", "long_lag", "sequence_lengths", "lstm_names", "char_model", "char_transformer",
)  # fmt: skip
HERE = Path(__file__).resolve().parent
CLAIM = re.compile(r"claim: (.*)\nsource: (.*)\ncriterion: (.*)\nmeasured: (.*)\nverdict: (.*)\n+")
INTRODUCTION = """# Experiments

Common claims about normalization, and our measurements of them. The script computed every verdict from the stated
criterion. For a criterion of the form `quantity: a < b`, the quantity was measured once for each seed; the claim
*agrees* if the mean of a is below that of b by a paired one-sided t test at 5 %, *disagrees* if it is above by the same
test, and is otherwise *undecided*; more seeds would often decide it. Numbers are mean ± standard deviation over the
seeds; bands in the figures extend from the lowest to the highest seed. A run that diverged counts as one with a very
large loss, and ends the curve of its kind. Not all criteria and settings were fixed beforehand: those of
char_transformer, long_lag, lstm_names, mlp_batch_sizes and shift_and_saturation were changed after first results, so
their verdicts are exploratory. Fixed beforehand were those about depth in char_transformer, reach in long_lag and batch
renormalization in small_batches, but not how a run that diverged counts.

- *The LN paper*: J. L. Ba, J. R. Kiros and G. E. Hinton 2016, Layer Normalization, [arXiv:1607.06450](
  https://arxiv.org/abs/1607.06450).
- *The tutorial*: senliuy, Layer Normalization, with notebooks at
  [keras_layerNorm_mlp_lstm](https://github.com/senliuy/keras_layerNorm_mlp_lstm).
- *The overview*: notes on "Normalization in deep learning, an overview" (一文详解深度学习中的 Normalization).

"""


class Section(NamedTuple):
    """One experiment: its docstring, its output, the claims in the output, and the seconds it took in all processes."""

    name: str
    doc: str
    output: str
    claims: list[tuple[str, ...]]
    seconds: float


def run(name: str, folder: Path, extra: list[str]) -> Section:
    path = HERE / f"{name}.py"
    begin = time.perf_counter()
    command = [sys.executable, str(path), "--plot", str(folder / f"{name}.png"), *extra]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return Section(name, doc, CLAIM.sub("", output).strip(), CLAIM.findall(output), time.perf_counter() - begin)


def train_one_seed(job: tuple[str, int, list[str]]) -> float:
    """Train an experiment's models of one seed, leave them in the folder of checkpoints, and return the seconds."""
    name, seed, extra = job
    begin = time.perf_counter()
    one = ["--plot", "", "--seed", str(seed), "--seeds", "1", *extra]
    subprocess.run([sys.executable, str(HERE / f"{name}.py"), *one], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def run_job(job: tuple[str, Path, list[str]]) -> Section:
    return run(*job)


def settings(name: str, quick: bool) -> dict[str, Any]:
    """Return the defaults of an experiment: the arguments of its call of `options`."""
    tree = ast.parse((HERE / f"{name}.py").read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "ex.options"]
    full, short = (ast.literal_eval(argument) for argument in calls[0].args[1:3])
    return {**full, **(short if quick else {})}


Map = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]


@contextmanager
def workers() -> Iterator[Map | None]:
    """Yield a function like `map` that runs in the other processes, or None if there are none."""
    if "mpi4py.futures" not in sys.modules:
        yield None
        return
    from mpi4py import MPI
    from mpi4py.futures import MPIPoolExecutor

    threads = max(1, get_num_threads() // max(1, MPI.COMM_WORLD.size - 1))
    with MPIPoolExecutor(env={"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads))}) as pool:
        yield pool.map


def run_all(names: Iterable[str], folder: Path, quick: bool) -> Iterator[Section]:
    """Run the experiments. Workers first train their seeds, all at once, and then read the checkpoints."""
    extra = ["--quick"] if quick else []
    with workers() as spread, tempfile.TemporaryDirectory(dir=folder) as trained:
        if spread is None:
            yield from (run(name, folder, extra) for name in names)
            return
        defaults = {name: settings(name, quick) for name in names}
        options = {name: [*extra, "--checkpoint", trained] if "epochs" in defaults[name] else extra for name in names}
        jobs = [
            (name, seed, options[name]) for name in names if "epochs" in defaults[name]
            for seed in range(defaults[name]["seeds"])
        ]  # fmt: skip
        seconds = dict.fromkeys(names, 0.0)
        for (name, *_), trained_in in zip(jobs, spread(train_one_seed, jobs), strict=True):
            seconds[name] += trained_in
        for section in spread(run_job, [(name, folder, options[name]) for name in names]):
            yield section._replace(seconds=section.seconds + seconds[section.name])


def gallery(docs: dict[str, str], columns: int = 3) -> list[str]:
    """Return the lines of a table of figures, each with the question of its experiment and a link to its section."""
    cells = [f"[![{name}]({name}.png)](#{name})<br>{question(doc)}" for name, doc in docs.items()]
    rows = [cells[k : k + columns] for k in range(0, len(cells), columns)]
    return ["|" + " |" * columns, "|" + " --- |" * columns, *(f"| {' | '.join(row)} |" for row in rows)]


def question(doc: str) -> str:
    """Return the first paragraph of an experiment's docstring."""
    return " ".join(doc.partition("\n\n")[0].split())


def page(sections: list[Section], setting: str) -> str:
    found = [verdict for section in sections for *_, verdict in section.claims]
    agree, disagree, undecided = (found.count(verdict) for verdict in ("agrees", "disagrees", "undecided"))
    counts = f"{len(found)} claims: {agree} agree, {disagree} disagree, {undecided} are undecided."
    lines = [f"{INTRODUCTION}{setting} {counts}", ""]
    lines += [*gallery({section.name: section.doc for section in sections}), ""]
    lines += ["| experiment | claim | criterion | measured | verdict |", "| --- | --- | --- | --- | --- |"]
    for section in sections:
        for says, source, criterion, measured, verdict in section.claims:
            link = f"[{section.name}](#{section.name})"
            lines.append(f"| {link} | {says} ({source}) | {criterion} | {measured} | **{verdict}** |")
    for section in sections:
        lines += ["", f"## {section.name}", "", f"**{question(section.doc)}**", "", section.doc.partition("\n\n")[2]]
        lines += ["", f"![{section.name}]({section.name}.png)", "", section.output]
        lines += ["", f"`python examples/{section.name}.py`, {section.seconds:.0f} s."]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="use the quick setting of every experiment")
    parser.add_argument("--only", nargs="+", choices=EXPERIMENTS, default=EXPERIMENTS, metavar="NAME",
                        help=f"which experiments: {', '.join(EXPERIMENTS)} (default: all)")  # fmt: skip
    parser.add_argument("--folder", type=Path, default=HERE / "results", help="where to write the page and its figures "
                        "(default: results, beside this file)")  # fmt: skip
    args = parser.parse_args()
    if set(args.only) != set(EXPERIMENTS) and args.folder.resolve() == HERE / "results":
        parser.error("argument --only: this would overwrite the page of all experiments; pass another --folder")
    args.folder.mkdir(parents=True, exist_ok=True)
    sections = []
    for section in run_all(args.only, args.folder, args.quick):
        sections.append(section)
        print(f"{section.name}: {section.seconds:.0f} s, {', '.join(claim[-1] for claim in section.claims)}")
    setting = "Measured by `make experiments`, the quick setting." if args.quick else "Measured in the full setting."
    (args.folder / "README.md").write_text(page(sections, setting), encoding="utf-8")
    print(f"page: {args.folder / 'README.md'}")


if __name__ == "__main__":
    main()
