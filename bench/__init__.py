"""Measurements: `python -m bench NAME` runs bench/NAME.py, without a name all of them into docs/benchmarks.md.

A module here has a docstring, whose first line is its heading, and `run()`, which returns rows of three texts: what
was measured, our figure, and the figure it stands against with their ratio (or the limit it must keep). Both sides of
a ratio are measured in the same run, interleaved, on the same machine: `bench.support` has the pieces.
"""
