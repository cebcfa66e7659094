"""`python -m stagebench.suite.cli`: the command line where no script is installed."""

import sys

from stagebench.suite.cli import program

sys.exit(program())
