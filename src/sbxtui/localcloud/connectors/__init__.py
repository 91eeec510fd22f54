"""Network connectors, as `lambda-core` has them: their records, their states, and what launches may name.

Imports the shared parts of the local cloud (faults, tokens, spec), and no sandbox's.
"""
