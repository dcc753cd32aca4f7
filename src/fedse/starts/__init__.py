"""What buffers begin with."""
