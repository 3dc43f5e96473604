"""Devices: the primitives, and how the CPU and GPUs compute them (sources in cext/devices/)."""
