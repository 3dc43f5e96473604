"""A fixture for tests of recurrent layers."""

import os

import pytest
from sequences import TEAMS, use_team

DEVICES = os.environ["MINIGRAD_TEST_DEVICES"].split(",")


@pytest.fixture(params=[name for name in ("cpu", *TEAMS) if name.split()[0] in DEVICES])
def place(request, monkeypatch):
    """Each device, and a GPU once with each of the teams; returns the device."""
    if request.param in TEAMS:
        use_team(monkeypatch, request.param)
    return request.param.split()[0]
