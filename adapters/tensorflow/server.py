"""`server.py JOB NUMBER CHIEFS WORKERS SERVERS THREADS`: one of TensorFlow's servers, next to the ranks.

JOB is "ps", a parameter server, or "worker", which runs what a coordinator schedules. It serves until it is ended.
"""

import os
import sys


def main(job: str, number: int, chiefs: int, workers: int, servers: int, threads: int) -> None:
    # Run as a file of the bundle: imports start from the bundle, not from this folder.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    from stagebench.adapters.tensorflow.comm import Member  # importable only now

    Member(job, number, (chiefs, workers, servers), threads).server.join()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
