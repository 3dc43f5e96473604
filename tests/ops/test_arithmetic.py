"""arithmetic"""
from checks import Suite
from table import ARITHMETIC


class TestARITHMETIC(Suite):
    ops = ARITHMETIC
