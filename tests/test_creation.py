"""creation"""
from checks import Suite
from table import CREATION


class TestCREATION(Suite):
    ops = CREATION
