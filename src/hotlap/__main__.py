"""`python -m hotlap` is `hotlap`."""

import sys

from hotlap.cli import main

sys.exit(main())
