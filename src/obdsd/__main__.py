"""`python -m obdsd` is `obdsd`."""

import sys

from obdsd.cli import main

sys.exit(main())
