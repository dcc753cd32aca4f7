"""How likely a network finds what an agent said, and the gradient of that."""
