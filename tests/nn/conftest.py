"""A fixture for tests of recurrent layers."""

import os

import pytest
from sequences import CREWS, use_crew

DEVICES = os.environ["MINIGRAD_TEST_DEVICES"].split(",")


@pytest.fixture(params=[name for name in ("cpu", *CREWS) if name.split()[0] in DEVICES])
def place(request, monkeypatch):
    """Each device, and a GPU once with each of the crews; returns the device."""
    if request.param in CREWS:
        use_crew(monkeypatch, request.param)
    return request.param.split()[0]
