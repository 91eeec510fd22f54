"""`python -m sbxtui` is `sbx`."""

from sbxtui.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
