"""norm"""
from checks import Suite
from table import NORM


class TestNORM(Suite):
    ops = NORM
