"""The way out of sandboxes: a forward proxy on the host that each one reaches through its bridge, and nothing else.

Imports what the local cloud may import.
"""
