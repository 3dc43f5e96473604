"""reduce"""
from checks import Suite
from table import REDUCE


class TestREDUCE(Suite):
    ops = REDUCE
