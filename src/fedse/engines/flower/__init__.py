"""Flower carries the tasks: between processes of one machine (simulation) or between machines (deployment)."""
