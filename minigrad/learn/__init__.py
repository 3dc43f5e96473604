"""A course that checks your answers: you write forward and backward passes, a check compares them with minigrad.

``python -m minigrad.learn`` runs it in a terminal. In a notebook, ``mg.learn.check("layer_norm", f, df)`` checks
functions of a cell.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from minigrad.learn.checking import Report, run
from minigrad.learn.course import Course, find

__all__ = ["Report", "check", "hint", "overview", "reset", "solution", "start"]


def check(stage: str | int | None = None, *functions: Callable[..., Any], folder: str | Path | None = None) -> Report:
    """Check the answers of a stage: those in the reader's file, or the functions given.

    Raises ValueError for an unknown stage, one that was not started, or too many functions.

    Parameters
    ----------
    stage : str or int, optional
        Name, number or beginning of the name; by default the first stage that has not been passed.
    *functions : callable
        The functions or classes of the stage. One that has none of their names takes the place of the first that is
        left. Only what is given is checked, and the progress does not change.
    folder : str or Path, optional
        The folder of the reader's files; by default ``minigrad-course`` in the current folder, or that itself.

    Returns
    -------
    Report
        True if everything is right. Printed, it says what is not, with the smallest case that shows it.

    Examples
    --------
    >>> def multiply_backward(g, a, b):
    ...     return g * b, g * a
    >>> mg.learn.check("broadcasting", multiply_backward)
    broadcasting
      wrong  multiply_backward: the gradient of a
    <BLANKLINE>
    The shape is (2, 2); it has to be (1, 2).
    <BLANKLINE>
    It is g * b without a sum. Where broadcasting repeated a number, the gradients
    of its copies add up.
    <BLANKLINE>
    The smallest case that shows it:
        g        = [[ 8.,  6.],
                    [ 7., -5.]]
        a        = [[ 6., -7.]]
        b        = [[-3., -2.],
                    [-4.,  5.]]
        expected = [[-52., -37.]]
        got      = [[-24., -12.],
                    [-28., -25.]]
    """
    course = Course(folder)
    if not functions:
        return course.check(stage)
    chosen = course.choose(stage)
    left, answers = list(chosen.functions), {}
    for function in sorted(functions, key=lambda f: getattr(f, "__name__", "") not in chosen.functions):
        if not left:
            raise ValueError(f"[learn] expected at most {len(chosen.functions)} functions, got {len(functions)}")
        name = getattr(function, "__name__", "")
        answers[left.pop(left.index(name) if name in left else 0)] = function
    return run(chosen.name, chosen.parts, answers)


def overview(folder: str | Path | None = None) -> None:
    """Print the stages, the progress, and what to do next. `folder` is as in `check`.

    Examples
    --------
    >>> mg.learn.overview()                                         # doctest: +ELLIPSIS
    You write the functions, and a check compares them with minigrad.
    ...
    """
    print(Course(folder).overview())


def start(stage: str | int | None = None, folder: str | Path | None = None) -> None:
    """Write the file of a stage into the reader's folder; a file that is there stays as it is.

    `stage` and `folder` are as in `check`.

    Examples
    --------
    >>> mg.learn.start("rnn", folder="course")
    course/10_rnn.py is written.
    Read it, complete rnn and rnn_backward, then run:
        python -m minigrad.learn --folder course check rnn
    """
    print(Course(folder).start(stage))


def reset(stage: str | int, folder: str | Path | None = None) -> None:
    """Write the file of a stage again; the reader's file is kept under another name.

    `stage` and `folder` are as in `check`.

    Examples
    --------
    >>> mg.learn.start("rnn", folder="course")                      # doctest: +ELLIPSIS
    course/10_rnn.py is ...
    >>> mg.learn.reset("rnn", folder="course")
    course/10_rnn.py is as at the beginning.
    Your file is now course/10_rnn.backup1.py
    """
    print(Course(folder).reset(stage))


def hint(stage: str | int | None = None, folder: str | Path | None = None) -> None:
    """Print the next hint of a stage, after those that were printed before. `stage` and `folder` are as in `check`.

    Examples
    --------
    >>> mg.learn.hint("linear", folder="course")                    # doctest: +ELLIPSIS
    03_linear.py
    <BLANKLINE>
    1. ...
    """
    print(Course(folder).hint(stage))


def solution(stage: str | int) -> None:
    """Print a solution of a stage. `stage` is as in `check`.

    Examples
    --------
    >>> mg.learn.solution("broadcasting")                           # doctest: +ELLIPSIS
    def unbroadcast(g, shape):
    ...
    """
    print(find(stage).solution, end="")
