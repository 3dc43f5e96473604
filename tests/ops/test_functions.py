"""functions"""
from checks import Suite
from table import FUNCTIONS


class TestFUNCTIONS(Suite):
    ops = FUNCTIONS
