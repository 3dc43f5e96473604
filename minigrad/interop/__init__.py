"""Meeting other libraries: NumPy's functions on tensors, einops."""
