"""A local folder and a folder of a sandbox, kept equal without ever losing bytes that somebody wrote."""
