"""The reader's folder and the command line: nothing is overwritten, progress is kept, errors are kind."""

import json
import os
import subprocess
import sys

import pytest
from checks import raises

import minigrad as mg
from minigrad.learn import __main__ as command
from minigrad.learn.course import FOLDER, PROGRESS, STAGES, Course, Stage, find, load


@pytest.fixture
def course(tmp_path):
    return Course(tmp_path / "course")


def solve(course, name):
    course.start(name)
    course.path(Stage(name)).write_text(Stage(name).solution, encoding="utf-8")


def test_course_from_beginning_to_end(tmp_path):
    """The commands as the reader types them, in a folder of its own."""

    def learn(*arguments, code=0):
        done = subprocess.run(
            [sys.executable, "-m", "minigrad.learn", *arguments], cwd=tmp_path, capture_output=True, text=True,
            env=os.environ | {"PYTHONPATH": os.path.dirname(os.path.dirname(mg.__file__))},
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout or done.stderr

    assert "Next: python -m minigrad.learn start\n" in learn()
    assert "01_tape.py is written." in learn("start")
    path = tmp_path / FOLDER / "01_tape.py"
    assert path.read_text(encoding="utf-8") == Stage("tape").text
    assert "Value: still to be written" in learn("check", code=1)
    assert "stays as it is" in learn("start")
    assert "1. The partial of y = a * b" in learn("hint")
    path.write_text(learn("solution", "tape"), encoding="utf-8")
    report = learn("check")
    assert "Everything is right." in report
    assert "\033" not in report
    assert " 1  tape            passed  A scalar tape in forty lines\n" in learn("list")
    assert "02_broadcasting.py is written." in learn("start")
    assert sorted(os.listdir(tmp_path / FOLDER)) == ["01_tape.py", "02_broadcasting.py", PROGRESS]


def test_the_whole_course_can_be_passed(course):
    for name in STAGES:
        assert course.next().name == name
        solve(course, name)
        if name != "training":  # test_answers.py trains
            assert course.check()
        else:
            course.record({"passed": list(STAGES), "hints": {}})
    assert course.next() is None
    assert "You have passed all stages." in course.overview()
    raises(ValueError, "all stages are passed", course.check)


@pytest.mark.parametrize("name", STAGES)
def test_start_never_overwrites(course, name):
    course.start(name)
    path = course.path(Stage(name))
    path.write_text("mine", encoding="utf-8")
    assert "stays as it is" in course.start(name)
    assert path.read_text(encoding="utf-8") == "mine"


def test_reset_keeps_every_file(course):
    path = course.path(Stage("rnn"))
    assert "is written" in course.reset("rnn")
    for text in ("first", "second", "third"):
        path.write_text(text, encoding="utf-8")
        course.reset("rnn")
        assert path.read_text(encoding="utf-8") == Stage("rnn").text
    kept = [path.with_name(f"10_rnn.backup{i}.py").read_text(encoding="utf-8") for i in (1, 2, 3)]
    assert kept == ["first", "second", "third"]


def test_check_changes_only_the_progress(course):
    solve(course, "linear")
    before = course.path(Stage("linear")).read_bytes()
    assert course.check("linear")
    assert course.path(Stage("linear")).read_bytes() == before
    assert sorted(os.listdir(course.folder)) == ["03_linear.py", PROGRESS]
    assert json.loads((course.folder / PROGRESS).read_text(encoding="utf-8")) == {"passed": ["linear"], "hints": {}}


def test_hints_come_one_after_the_other(course):
    hints = Stage("adamw").hints
    for seen in range(1, len(hints) + 1):
        text = " ".join(course.hint("adamw").split())
        assert [hint in text for hint in hints] == [i < seen for i in range(len(hints))]
    assert "solution adamw" in text
    assert " ".join(course.hint("adamw").split()) == text


@pytest.mark.parametrize(
    "name", ["layer_norm", "layer", 5, "5", "05", "05_layer_norm", "05_layer_norm.py", "x/05_layer_norm.py"]
)
def test_stage_has_many_names(name):
    assert find(name).name == "layer_norm"


@pytest.mark.parametrize("name", ["", "b", "bug", "0", "15", "tapes", "-1", "²"])
def test_other_names_are_refused(name):
    raises(ValueError, r"^\[learn\] expected a stage, got .*: the stages are tape, ", find, name)


@pytest.mark.parametrize("text, message", [
    ("def linear_backward(g, x, w:\n    pass\n", "SyntaxError: '(' was never closed"),
    ("import nothing_of_that_name\n", "line 1: import nothing_of_that_name"),
    ("def other():\n    pass\n", "There is no linear_backward at the top level of the file."),
    ("raise SystemExit\n", "line 1: raise SystemExit RuntimeError: exit() ends Python"),
    ("linear_backward = 3\n", "TypeError: 'int' object is not callable"),
    ("def linear_backward(g, x):\n    pass\n", "takes 2 positional arguments but 3 were given"),
])  # fmt: skip
def test_file_that_does_not_run(course, text, message):
    course.start("linear")
    course.path(Stage("linear")).write_text(text, encoding="utf-8")
    report = course.check("linear")
    assert not report
    assert message in " ".join(str(report).split())
    assert "checking.py" not in str(report)


def test_endless_loop_of_a_file_is_stopped(tmp_path):
    path = tmp_path / "03_linear.py"
    path.write_text("while True:\n    pass\n", encoding="utf-8")
    assert "TimeoutError: no result after 0.2 s" in str(load(path, 0.2))


def test_file_may_begin_with_a_byte_order_mark(course):
    solve(course, "linear")
    course.path(Stage("linear")).write_text(Stage("linear").solution, encoding="utf-8-sig")
    assert course.check("linear")


def test_an_edit_counts_at_once(course):
    """Even within the resolution of a file's time, which compiled files would be compared by."""
    solve(course, "linear")
    path = course.path(Stage("linear"))
    assert course.check("linear")
    stat = path.stat()
    path.write_text(path.read_text(encoding="utf-8").replace("sum(axis=0)", "sum(axis=1)"), encoding="utf-8")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert not course.check("linear")


def test_folder_is_found_from_inside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Course().start("tape")
    assert (tmp_path / FOLDER / "01_tape.py").exists()
    monkeypatch.chdir(tmp_path / FOLDER)
    Course().start("linear")
    assert (tmp_path / FOLDER / "03_linear.py").exists()


def test_next_command_is_the_one_to_type(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert Course().start("layer_norm").endswith("then run:\n    python -m minigrad.learn check layer_norm")
    assert Course("mine").start("tape").endswith("then run:\n    python -m minigrad.learn --folder mine check")
    assert all(len(line) <= 80 for name in STAGES for line in Course().start(name).splitlines())


def test_errors_of_commands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command.main(["check"]) == 2
    assert "does not exist. To write it:\n    python -m minigrad.learn start tape\n" in capsys.readouterr().err
    assert command.main(["start", "nothing"]) == 2
    assert "expected a stage, got 'nothing'" in capsys.readouterr().err
    (tmp_path / PROGRESS).write_text("{", encoding="utf-8")
    assert command.main([]) == 2
    assert f"expected the progress in {PROGRESS}" in " ".join(capsys.readouterr().err.split())
    assert (tmp_path / PROGRESS).read_text(encoding="utf-8") == "{"


def test_output_that_nobody_reads():
    """As in `python -m minigrad.learn | head -0`."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([sys.executable, "-m", "minigrad.learn"], stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_colors_are_for_terminals(monkeypatch):
    text = "03_linear.py\n  ok     linear_backward: the gradient of x\n  wrong  linear_backward\n   1  tape            passed  A tape"
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert command.paint(text) == text
    monkeypatch.setattr(sys, "stdout", type("Terminal", (), {"isatty": lambda self: True})())
    painted = command.paint(text)
    assert painted.count("\033[32m") == 2
    assert "\033[31mwrong\033[0m" in painted
    monkeypatch.setenv("NO_COLOR", "1")
    assert command.paint(text) == text


def test_functions_of_a_notebook(tmp_path, monkeypatch):
    """Functions are found by their names; one with another name takes the first that is left. No progress is kept."""
    monkeypatch.chdir(tmp_path)
    space = {}
    exec(Stage("cross_entropy").solution, space)
    first, second = space["cross_entropy"], space["cross_entropy_backward"]
    assert mg.learn.check("cross_entropy", second, first)
    assert mg.learn.check("cross_entropy", second)
    assert mg.learn.check("cross_entropy", lambda logits, labels: first(logits, labels), second)
    assert not mg.learn.check("cross_entropy", lambda logits, labels: second(1.0, logits, labels))
    with pytest.raises(ValueError, match=r"^\[learn\] expected at most 2 functions, got 3"):
        mg.learn.check("cross_entropy", first, second, first)
    assert os.listdir(tmp_path) == []
