"""Isolation runtimes behind one interface."""
