"""`server.py scheduler` or `server.py server`: MXNet's processes that are no workers.

Importing mxnet in such a role serves until the workers are done, and then ends the
process.
"""

import os
import sys


def main(role: str) -> None:
    """Serve; SystemExit when all is done."""
    # Run as a file of the bundle: its own folder is no place to import from, the bundle is.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    from adapters.mxnet.ps_lite import take_part  # only now it can be found

    take_part(role)
    import mxnet  # noqa: F401 - this is what serves


if __name__ == "__main__":
    main(sys.argv[1])
