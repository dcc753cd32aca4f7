"""Where base models come from, and the one place where text becomes tokens."""
