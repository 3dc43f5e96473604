"""index"""
from checks import Suite
from table import INDEX


class TestINDEX(Suite):
    ops = INDEX
