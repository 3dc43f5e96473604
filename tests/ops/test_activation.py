"""activation"""
from checks import Suite
from table import ACTIVATION


class TestACTIVATION(Suite):
    ops = ACTIVATION
