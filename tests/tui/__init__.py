"""The dashboard, driven by a pilot and in a real terminal."""
