"""A server that speaks the control plane's API on this machine.

Stands apart: started as a process, imported by nobody.
"""
