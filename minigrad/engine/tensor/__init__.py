"""The class Tensor, and what makes tensors (sources in cext/tensor/)."""
