"""A solution of every stage."""
