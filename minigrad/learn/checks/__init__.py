"""The checks of the stages: what is right, which mistakes are foreseen, and hints."""
