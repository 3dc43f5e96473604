"""Fixtures for kernels that are not compiled as usual."""

import pytest

from minigrad.cuda import launch


@pytest.fixture
def forget():
    """Return a function that lets the kernels be loaded anew, which is also done after the test."""

    def clear():
        launch.kernels.clear()
        launch._module.cache_clear()

    yield clear
    clear()


@pytest.fixture
def preempted(monkeypatch, forget):
    """Let threads take turns between accesses to memory, too, which only the emulation can do."""
    original = launch.options
    monkeypatch.setattr(launch, "options", lambda dtype: (*original(dtype), "-fsanitize=thread"))
    forget()
