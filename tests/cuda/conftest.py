"""Fixtures for kernels that are not compiled as usual."""

import pytest

from minigrad.cuda import launch


@pytest.fixture
def forget():
    """Return a function that forgets the loaded kernels, so that they are loaded again; it also runs after the test."""

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
