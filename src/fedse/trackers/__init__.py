"""What is told of a run as it happens, and to whom."""
