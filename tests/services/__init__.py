"""What sbx can do, on the local cloud."""
