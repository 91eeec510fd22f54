"""The guest program, and the host side of its wire."""
