"""`python -m suite.cli`: the command line where no script is installed."""

import sys

from suite.cli import main

sys.exit(main())
