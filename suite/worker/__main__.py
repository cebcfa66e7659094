"""The program that launchers start: `python -m suite.worker JOB`."""

import sys

from suite.worker.main import main

sys.exit(main(sys.argv[1:]))
