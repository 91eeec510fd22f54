"""Faults on purpose: rules that say which calls go wrong, how, and how often, for tests and for practice."""
