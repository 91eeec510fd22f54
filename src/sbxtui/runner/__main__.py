"""`python -m sbxtui.runner`."""

from sbxtui.runner.main import main

if __name__ == "__main__":
    raise SystemExit(main())
