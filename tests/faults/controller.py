"""`stagebench` with the campaign's adapter.

python tests/faults/controller.py run PLAN -o FOLDER
"""

import sys

from suite import cli
from tests.faults import adapter

if __name__ == "__main__":
    try:
        adapter.register()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted before the command line had begun\n")
        sys.exit(cli.INTERRUPTED)
    sys.exit(cli.program())
