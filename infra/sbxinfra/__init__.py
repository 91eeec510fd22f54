"""Data only: templates and policies for the account side."""
