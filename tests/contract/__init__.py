"""Every client of the control plane's API against the local cloud."""
