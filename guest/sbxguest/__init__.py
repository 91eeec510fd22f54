"""The guest program: runs inside every sandbox.

A leaf: imports nothing of sbxtui; the host imports only `wire` and `tree`.
"""
