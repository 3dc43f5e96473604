"""Functions of tensors that are composed of operations."""
