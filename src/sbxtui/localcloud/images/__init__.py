"""Images that are built here: what a request may ask for, their versions and builds on disk, and building them.

Imports the shared parts of the local cloud; the catalog asks it for what can be launched.
"""
