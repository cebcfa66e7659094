"""`stagebench` with the campaign's adapter.

python tests/faults/controller.py run PLAN -o FOLDER
"""

import sys

if __name__ == "__main__":
    try:
        from suite import cli
        from tests.faults import adapter

        adapter.register()
    except KeyboardInterrupt:  # the command line, which catches it, has not begun
        sys.stderr.write("interrupted\n")
        sys.exit(130)
    sys.exit(cli.program())
