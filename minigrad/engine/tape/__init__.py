"""The tape: records, nodes, the backward pass, and how others listen to it (sources in cext/tape/)."""
