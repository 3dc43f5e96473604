"""softmax"""
from checks import Suite
from table import SOFTMAX


class TestSOFTMAX(Suite):
    ops = SOFTMAX
