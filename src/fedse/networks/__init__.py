"""How torch computes a language model that has an adapter."""
