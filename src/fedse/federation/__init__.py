"""The server's half of a run: rounds, the loop over them, checks of what clients answer."""
