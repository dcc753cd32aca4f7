"""What is measured, by which definition, and how sure one can be of it."""
