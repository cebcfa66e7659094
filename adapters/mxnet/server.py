"""`server.py scheduler` or `server.py server`: MXNet's processes next to the workers.

Importing mxnet in such a role serves until the workers are done, and then ends the process.
"""

import os
import sys


def main(role: str) -> None:
    """Serve; SystemExit when all is done."""
    # Run as a file of the bundle: imports start from the bundle, not from this folder.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    from adapters.mxnet.ps_lite import take_part  # importable only now

    take_part(role)
    import mxnet  # noqa: F401 - this is what serves


if __name__ == "__main__":
    main(sys.argv[1])
