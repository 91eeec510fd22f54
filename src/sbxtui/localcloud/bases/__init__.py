"""Bases: roots of other systems than this machine's, which images may be built from. May import what images do."""
