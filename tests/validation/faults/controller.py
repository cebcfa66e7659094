"""`stagebench` with the campaign's adapter, and less patience with a disk.

python tests/validation/faults/controller.py run PLAN -o FOLDER
"""

import sys

if __name__ == "__main__":
    try:
        from stagebench.suite import cli
        from stagebench.suite.session import patience
        from tests.validation.faults import adapter

        adapter.register()
        patience.PATIENCE, patience.AGAIN = 6.0, 0.5  # longer than some of its faults last, shorter than others
    except KeyboardInterrupt:  # the command line, which catches it, has not begun
        sys.stderr.write("interrupted\n")
        sys.exit(130)
    sys.exit(cli.program())
