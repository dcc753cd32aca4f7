"""The training loop of one adapter's lesson."""
