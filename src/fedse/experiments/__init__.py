"""Experiments: how they are written, what they are made of, how they run."""
