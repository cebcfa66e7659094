"""The program that launchers start: `python -m stagebench.suite.worker JOB`."""

import sys

from stagebench.suite.worker.main import main

sys.exit(main(sys.argv[1:]))
