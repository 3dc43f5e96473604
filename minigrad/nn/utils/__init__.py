"""Utilities for networks: parameters, gradients, normalized weights, and sequences of different lengths."""

import typing as _typing

from minigrad.engine.tensor.pytorch_names import lookup as _lookup
from minigrad.nn.norm.spectral_norm import remove_spectral_norm, spectral_norm
from minigrad.nn.norm.weight_norm import (
    remove_weight_norm, remove_weight_standardization, weight_norm, weight_standardization,
)  # fmt: skip
from minigrad.nn.utils import rnn
from minigrad.nn.utils.parameters import (
    clip_grad_norm_, clip_grad_value_, fold_batch_norm, parameters_to_vector, vector_to_parameters,
)  # fmt: skip

__all__ = [
    "clip_grad_norm_", "clip_grad_value_", "fold_batch_norm", "parameters_to_vector", "remove_spectral_norm",
    "remove_weight_norm", "remove_weight_standardization", "rnn", "spectral_norm", "vector_to_parameters",
    "weight_norm", "weight_standardization",
]  # fmt: skip

if not _typing.TYPE_CHECKING:
    __getattr__ = _lookup(__name__)
