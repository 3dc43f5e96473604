"""layout"""
from checks import Suite
from table import LAYOUT


class TestLAYOUT(Suite):
    ops = LAYOUT
