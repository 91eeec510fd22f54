"""The border to the control plane."""
