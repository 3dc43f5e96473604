"""The compiled engine: arrays, the tape, the backends and the operations (sources in cext/)."""
