"""How an adapter learns from what a client explored and remembers."""
