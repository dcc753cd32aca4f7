"""A run on disk: resolved experiment, rounds, clients, events, and the manifest that says what is complete."""
