"""`python -m suite.cli`: the command line where no script is installed."""

import sys

from suite.cli import program

sys.exit(program())
