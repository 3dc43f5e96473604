"""The files that the reader gets, copied as they are."""
