"""``python -m userdp``."""

import sys

from userdp.cli import main

if __name__ == "__main__":
    sys.exit(main())
