"""Saving and loading: tensors as safetensors files, training runs as checkpoints, and files written all or nothing."""

from minigrad.saving.checkpoint import load_checkpoint, save_checkpoint
from minigrad.saving.serialization import load, save

__all__ = ["load", "load_checkpoint", "save", "save_checkpoint"]
