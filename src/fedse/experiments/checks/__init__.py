"""What does not go together in an experiment: each file refuses one kind of it, in a sentence."""
