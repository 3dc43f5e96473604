"""Arrays: dtypes, memory, layout, running calls, and exchange with other libraries (sources in cext/memory/)."""
