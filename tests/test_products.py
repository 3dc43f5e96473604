"""products"""
from checks import Suite
from table import PRODUCTS


class TestPRODUCTS(Suite):
    ops = PRODUCTS
