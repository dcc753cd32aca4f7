"""How tasks reach clients and updates come back."""
