"""Servers that answer for a model elsewhere."""
