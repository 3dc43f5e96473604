"""Neural networks: modules, losses, initialization and utilities, under PyTorch's names."""

import typing as _typing

from minigrad.engine.tensor.pytorch_names import lookup as _lookup
from minigrad.nn import functional, init, utils
from minigrad.nn.container import ModuleDict, ModuleList, ParameterList, Sequential
from minigrad.nn.layers.activation import (
    ELU, GELU, GLU, SELU, Hardsigmoid, Hardswish, Hardtanh, LeakyReLU, LogSigmoid, LogSoftmax, Mish, PReLU, ReLU, ReLU6,
    Sigmoid, SiLU, Softmax, Softplus, Softsign, Tanh,
)  # fmt: skip
from minigrad.nn.layers.attention import KeyValueCache, MultiheadAttention
from minigrad.nn.layers.conv import Conv1d, Conv2d, ConvTranspose2d
from minigrad.nn.layers.dropout import Dropout, Dropout1d, Dropout2d
from minigrad.nn.layers.embedding import Embedding
from minigrad.nn.layers.linear import Linear
from minigrad.nn.layers.padding import (
    ConstantPad1d, ConstantPad2d, ReflectionPad1d, ReflectionPad2d, ReplicationPad1d, ReplicationPad2d, ZeroPad1d,
    ZeroPad2d,
)  # fmt: skip
from minigrad.nn.layers.pooling import AdaptiveAvgPool2d, AvgPool1d, AvgPool2d, MaxPool1d, MaxPool2d
from minigrad.nn.layers.position import LearnedPositions, SinusoidalPositions
from minigrad.nn.layers.residual import DeepNorm, LayerScale
from minigrad.nn.layers.shape import Flatten, Identity, PixelShuffle, Unflatten, Upsample
from minigrad.nn.layers.transformer import (
    Transformer, TransformerDecoder, TransformerDecoderLayer, TransformerEncoder, TransformerEncoderLayer,
)  # fmt: skip
from minigrad.nn.losses.layers import (
    BCELoss, BCEWithLogitsLoss, CosineSimilarity, CrossEntropyLoss, CTCLoss, GaussianNLLLoss, HuberLoss, KLDivLoss,
    L1Loss, MSELoss, NLLLoss, SmoothL1Loss, TripletMarginLoss,
)  # fmt: skip
from minigrad.nn.module import Module
from minigrad.nn.norm.batch_norm import (
    BatchNorm1d, BatchNorm2d, BatchRenorm1d, BatchRenorm2d, InstanceNorm1d, InstanceNorm2d, RecurrentBatchNorm1d,
)  # fmt: skip
from minigrad.nn.norm.conditional import AdaLN, FiLM
from minigrad.nn.norm.response_norm import TLU, FilterResponseNorm2d
from minigrad.nn.norm.row_norms import DyT, GroupNorm, LayerNorm, RMSNorm, ScaleNorm
from minigrad.nn.norm.sync_batch_norm import SyncBatchNorm, convert_sync_batchnorm
from minigrad.nn.parameter import Buffer, Parameter
from minigrad.nn.recurrent.cell import GRUCell, LSTMCell, RNNCell
from minigrad.nn.recurrent.layers import GRU, LSTM, RNN
from minigrad.nn.recurrent.min_recurrent import MinGRU, MinLSTM
from minigrad.nn.summary import Summary, summary

__all__ = [
    "ELU", "GELU", "GLU", "GRU", "LSTM", "RNN", "SELU", "TLU", "AdaLN", "AdaptiveAvgPool2d", "AvgPool1d", "AvgPool2d",
    "BCELoss", "BCEWithLogitsLoss", "BatchNorm1d", "BatchNorm2d", "BatchRenorm1d", "BatchRenorm2d", "Buffer",
    "CTCLoss", "ConstantPad1d", "ConstantPad2d", "Conv1d", "Conv2d", "ConvTranspose2d", "CosineSimilarity",
    "CrossEntropyLoss",
    "DeepNorm", "Dropout", "Dropout1d", "Dropout2d", "DyT", "Embedding", "FiLM", "FilterResponseNorm2d", "Flatten",
    "GRUCell", "GaussianNLLLoss", "GroupNorm", "Hardsigmoid", "Hardswish", "Hardtanh", "HuberLoss", "Identity",
    "InstanceNorm1d", "InstanceNorm2d", "KLDivLoss", "KeyValueCache", "L1Loss", "LSTMCell", "LayerNorm", "LayerScale",
    "LeakyReLU", "LearnedPositions", "Linear", "LogSigmoid", "LogSoftmax", "MSELoss", "MaxPool1d", "MaxPool2d",
    "MinGRU", "MinLSTM", "Mish", "Module", "ModuleDict", "ModuleList", "MultiheadAttention", "NLLLoss", "PReLU",
    "Parameter", "ParameterList", "PixelShuffle", "RMSNorm", "RNNCell", "ReLU", "ReLU6", "RecurrentBatchNorm1d",
    "ReflectionPad1d", "ReflectionPad2d", "ReplicationPad1d", "ReplicationPad2d", "ScaleNorm", "Sequential", "SiLU",
    "Sigmoid", "SinusoidalPositions", "SmoothL1Loss", "Softmax", "Softplus", "Softsign", "Summary", "SyncBatchNorm",
    "Tanh", "Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder",
    "TransformerEncoderLayer", "TripletMarginLoss", "Unflatten", "Upsample", "ZeroPad1d", "ZeroPad2d",
    "convert_sync_batchnorm", "functional", "init", "summary", "utils",
]  # fmt: skip

if not _typing.TYPE_CHECKING:
    __getattr__ = _lookup(__name__)
