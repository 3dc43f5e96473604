"""The reader's folder: which stages there are, their files, and the progress."""

import ast
import json
import os
import re
import shlex
import textwrap
import traceback
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from minigrad.learn.checking import COLUMNS, Part, Report, replace_exit, run, time_limit

# In the order of the course. Each is a file in stages/ and one in checks/.
STAGES = (
    "tape", "broadcasting", "linear", "cross_entropy", "layer_norm", "bug_epsilon", "bug_gradient", "bug_parameters",
    "batch_norm", "rnn", "ln_lstm", "attention", "adamw", "training",
)  # fmt: skip
FOLDER, PROGRESS = "minigrad-course", "minigrad-course.json"
PACKAGE = Path(__file__).parent


class Stage:
    """One stage: the text and the check that ship with minigrad."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.number = STAGES.index(name) + 1
        self.file = f"{self.number:02}_{name}.py"

    @cached_property
    def source(self) -> str:
        """The text for the reader, and a solution; `minigrad.learn.stages` says what the marks in it mean."""
        return (PACKAGE / "stages" / f"{self.name}.py").read_text(encoding="utf-8")

    @cached_property
    def text(self) -> str:
        """The file that the reader gets."""
        lines = self.source.splitlines(keepends=True)
        nodes = [node for node in ast.walk(ast.parse(self.source)) if isinstance(node, ast.FunctionDef | ast.ClassDef)]
        for node in sorted(nodes, key=lambda node: -node.lineno):
            first, end = node.lineno - 1, node.end_lineno
            if lines[first].endswith("  # ours\n"):
                del lines[first : (end or 0) + 2]
            elif lines[first].endswith("  # yours\n"):
                start = node.body[0].end_lineno if ast.get_docstring(node) else node.lineno
                lines[start:end] = [" " * (node.col_offset + 4) + "raise NotImplementedError\n"]
        text = re.sub(r"((?: *# bug: .*\n)+).*\n", lambda bug: bug[1].replace("# bug: ", ""), "".join(lines))
        return text.replace("  # yours\n", "\n")

    @property
    def title(self) -> str:
        return self.source.removeprefix('"""').partition("\n")[0].rstrip(".")

    @property
    def solution(self) -> str:
        code = self.source.partition('\n"""\n')[2].lstrip()
        code = re.sub(r"\Aimport numpy as np\n+(?!.*\bnp\.)", "", code, flags=re.S)  # only readers may need it
        return re.sub(r"  # y?ours$| *# bug: .*\n", "", code, flags=re.M)

    @cached_property
    def check(self) -> ModuleType:
        return import_module(f"minigrad.learn.checks.{self.name}")

    @property
    def parts(self) -> list[Part]:
        return self.check.PARTS

    @property
    def functions(self) -> list[str]:
        """The names that the reader writes, each once."""
        return list(dict.fromkeys(part.name for part in self.parts))

    @property
    def hints(self) -> list[str]:
        return [" ".join(hint.split()) for hint in self.check.HINTS]


def find(name: str | int) -> Stage:
    """Return the stage of that name, number or beginning of a name; the name of its file will do."""
    text = re.sub(r"^\d+_", "", Path(str(name)).name.removesuffix(".py"))
    if text.isdecimal() and 0 < int(text) <= len(STAGES):
        return Stage(STAGES[int(text) - 1])
    found = [text] if text in STAGES else [stage for stage in STAGES if text and stage.startswith(text)]
    if len(found) != 1:
        raise ValueError(f"[learn] expected a stage, got {name!r}: the stages are {', '.join(STAGES)}")
    return Stage(found[0])


class Course:
    """A folder with the reader's files, and the progress beside them."""

    def __init__(self, folder: str | Path | None = None) -> None:
        if folder is None:  # Python runs in the folder of the course, or above it
            folder, self.command = "." if Path(PROGRESS).exists() else FOLDER, "python -m minigrad.learn"
        else:
            self.command = f"python -m minigrad.learn --folder {shlex.quote(str(folder))}"
        self.folder = Path(folder)

    def path(self, stage: Stage) -> Path:
        return self.folder / stage.file

    # ── progress ──────────────────────────────────────────────────────────────────────────────────

    def progress(self) -> dict[str, Any]:
        """{"passed": [stages], "hints": {stage: number seen}}."""
        path = self.folder / PROGRESS
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            return {"passed": list(found["passed"]), "hints": dict(found["hints"])}
        except FileNotFoundError:
            return {"passed": [], "hints": {}}
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"[learn] expected the progress in {path}, got something else ({error}): remove it"
            ) from None

    def record(self, progress: dict[str, Any]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        part = self.folder / f"{PROGRESS}.part"
        part.write_text(json.dumps(progress, indent=1) + "\n", encoding="utf-8")
        os.replace(part, self.folder / PROGRESS)

    def next(self) -> Stage | None:
        """Return the first stage that has not been passed."""
        passed = self.progress()["passed"]
        return next((Stage(name) for name in STAGES if name not in passed), None)

    def choose(self, name: str | int | None) -> Stage:
        """Return the stage of that name, or the next one."""
        stage = find(name) if name is not None else self.next()
        if stage is None:
            raise ValueError("[learn] all stages are passed: name one to see it again")
        return stage

    # ── what the reader can do ────────────────────────────────────────────────────────────────────

    def overview(self) -> str:
        progress, following = self.progress(), self.next()
        lines = ["You write the functions, and a check compares them with minigrad.", ""]
        for stage in map(Stage, STAGES):
            state = "passed" if stage.name in progress["passed"] else "started" if self.path(stage).exists() else ""
            lines.append(f"  {stage.number:2}  {stage.name:15} {state:8s}{stage.title}")
        return "\n".join([*lines, "", *self.advice(following)])

    def advice(self, stage: Stage | None) -> list[str]:
        """Return the lines that say what to do next."""
        if stage is None:
            return ['You have passed all stages. The pages "Two networks" and "Reading the engine" go on from here.']
        if not self.path(stage).exists():
            return [f"Next: {self.command} start", f"It writes {self.path(stage)}, which is yours to edit."]
        return [f"Next: edit {self.path(stage)},", f"then run {self.command} check (or hint)."]

    def start(self, name: str | int | None = None) -> str:
        """Write the file of a stage, unless it is there."""
        stage = self.choose(name)
        path = self.path(stage)
        self.record(self.progress())
        try:
            with open(path, "x", encoding="utf-8") as file:
                file.write(stage.text)
        except FileExistsError:
            return f"{path} is there already and stays as it is.\nTo begin again: {self.command} reset {stage.name}"
        task = "find the bug" if stage.name.startswith("bug_") else f"complete {join_names(stage.functions)}"
        following = self.next()
        named = "" if following and following.name == stage.name else f" {stage.name}"
        return f"{path} is written.\nRead it, {task}, then run:\n    {self.command} check{named}"

    def reset(self, name: str | int) -> str:
        """Write the file of a stage again and keep the old one under another name."""
        stage = find(name)
        path = self.path(stage)
        if not path.exists():
            return self.start(stage.name)
        for number in range(1, 10**6):
            backup = path.with_name(f"{path.stem}.backup{number}.py")
            try:
                with open(backup, "xb") as file:
                    file.write(path.read_bytes())
                break
            except FileExistsError:
                continue
        path.write_text(stage.text, encoding="utf-8")
        return f"{path} is as at the beginning.\nYour file is now {backup}"

    def check(self, name: str | int | None = None) -> Report:
        """Check the reader's file and keep the result."""
        stage = self.choose(name)
        path = self.path(stage)
        if not path.exists():
            raise ValueError(
                f"[learn] expected {path}, which does not exist. To write it:\n    {self.command} start {stage.name}"
            )
        answers = load(path, max(part.seconds for part in stage.parts))
        if isinstance(answers, Report):
            return Report(stage.name, False, f"{stage.file}\n{answers.text}")
        missing = [function for function in stage.functions if function not in answers]
        if missing:
            text = f"There is no {missing[0]} at the top level of the file. Was it renamed or indented?"
            return Report(stage.name, False, "\n".join([stage.file, "", fill(text)]))
        seen = self.progress()["hints"].get(stage.name, 0)
        way = "hint" if seen < len(stage.hints) else "solution"
        more = f"For a {way}: {self.command} {way} {stage.name}"
        report = run(stage.file, stage.parts, answers, more)
        if report:
            progress = self.progress()
            if stage.name not in progress["passed"]:
                progress["passed"].append(stage.name)
                self.record(progress)
            report = Report(stage.name, True, "\n".join([report.text, "", *self.advice(self.next())]))
        return Report(stage.name, report.passed, report.text)

    def hint(self, name: str | int | None = None) -> str:
        """Return the hints of a stage up to the next one."""
        stage = self.choose(name)
        progress = self.progress()
        seen = min(progress["hints"].get(stage.name, 0) + 1, len(stage.hints))
        progress["hints"][stage.name] = seen
        self.record(progress)
        lines = [fill(f"{number}. {hint}", "   ") for number, hint in enumerate(stage.hints[:seen], 1)]
        left = len(stage.hints) - seen
        last = f"({left} more)" if left else f"(That was the last one. There is also: solution {stage.name})"
        return "\n".join([stage.file, "", *lines, "", last])


def join_names(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)


def fill(text: str, indent: str = "") -> str:
    return textwrap.fill(text, COLUMNS, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def load(path: Path, seconds: float) -> dict[str, Any] | Report:
    """Return the names that the reader's file defines, or a report of the error in it.

    It is compiled here, because an import would leave compiled files in the reader's folder.
    """
    module = ModuleType(path.stem)
    module.__file__ = str(path)
    try:
        code = compile(path.read_bytes(), str(path), "exec")
        with time_limit(seconds):
            exec(code, vars(module))
    except (Exception, SystemExit) as caught:
        error = replace_exit(caught)
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        lines = [f"    line {frame.lineno}: {frame.line}" for frame in frames]
        lines += [f"    {line}" for line in "".join(traceback.format_exception_only(error)).splitlines()]
        return Report(path.name, False, "\n".join(["  wrong  the file does not run", "", *lines]))
    return vars(module)
