"""How a network's replies are drawn, token by token, for many conversations at once."""
