"""Forwards: the bytes, the listeners, who may pass."""
