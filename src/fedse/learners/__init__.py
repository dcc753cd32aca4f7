"""How an adapter is fitted to what a client remembers."""
