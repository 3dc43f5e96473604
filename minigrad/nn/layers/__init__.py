"""Layers other than norms and recurrent ones."""
