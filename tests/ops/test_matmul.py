"""matmul"""
from checks import Suite
from table import MATMUL


class TestMATMUL(Suite):
    ops = MATMUL
