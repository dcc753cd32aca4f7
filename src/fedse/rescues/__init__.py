"""What is made of failed explorations."""
