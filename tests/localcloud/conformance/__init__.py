"""The local cloud against what is known of the platform: tables of checks, each with the line it holds to."""
