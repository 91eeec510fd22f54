"""Forwards: ports of a sandbox on this machine's loopback. Imports what services may."""
