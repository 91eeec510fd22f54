"""What is installed, from what is published."""
