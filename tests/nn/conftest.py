"""A fixture for tests of recurrent layers."""

import os

import pytest
from sequences import BLOCK_GROUPS, use_block_group

DEVICES = os.environ["MINIGRAD_TEST_DEVICES"].split(",")


@pytest.fixture(params=[name for name in ("cpu", *BLOCK_GROUPS) if name.split()[0] in DEVICES])
def place(request, monkeypatch):
    """Each device, and a GPU once with each kind of block group; returns the device."""
    if request.param in BLOCK_GROUPS:
        use_block_group(monkeypatch, request.param)
    return request.param.split()[0]
