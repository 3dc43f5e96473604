"""Processes that train together: how they find each other, and what they exchange."""
