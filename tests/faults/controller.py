"""`stagebench` with the campaign's adapter.

python tests/faults/controller.py run PLAN -o FOLDER
"""

import sys

from suite import cli
from tests.faults import adapter

if __name__ == "__main__":
    adapter.register()
    sys.exit(cli.program())
