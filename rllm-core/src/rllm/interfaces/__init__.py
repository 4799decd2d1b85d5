"""Contracts between the core and its plugins: one Protocol a file, and the specs that announce them."""
