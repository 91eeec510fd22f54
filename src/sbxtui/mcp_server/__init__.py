"""The face for agents."""
