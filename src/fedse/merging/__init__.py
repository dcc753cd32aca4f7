"""Finished adapters made into one, once, and measured."""
