"""join"""
from checks import Suite
from table import JOIN


class TestJOIN(Suite):
    ops = JOIN
