"""`python -m sbxtui.localcloud`."""

import sys

from sbxtui.localcloud.main import main

if __name__ == "__main__":
    sys.exit(main())
