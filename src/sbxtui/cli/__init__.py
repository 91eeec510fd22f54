"""The command line. Lazy: a verb imports only what it runs."""
