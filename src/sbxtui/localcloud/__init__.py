"""A server that speaks the control plane's API on this machine. Started as a process, imported by nobody."""
