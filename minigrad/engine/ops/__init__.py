"""The operations: each with its equation, forward, backward and composition (sources in cext/ops/)."""
