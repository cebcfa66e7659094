"""`python -m suite.worker JOB`: what launchers start."""

import sys

from suite.worker.main import main

sys.exit(main(sys.argv[1:]))
