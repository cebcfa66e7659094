"""Does an all-reduce of 16 MiB fill a wire of 1 Gbit/s, on every library that the suite sets up for it?

Run it on the first of two hosts, by the interpreter that has stagebench:

    stagebench lab up 2 --rate 1gbit
    stagebench lab exec lab1 -- python tests/validation/all_reduce_on_the_wire.py --hosts lab1,lab2

The figures are `stagebench comm`'s own: the median of 3 s, in bytes of the message a second. Exit code 1
below 110 MB/s of the 125 that the wire carries with its headers, and where a backend is not here.
"""

import argparse
import json
import subprocess
import sys

BACKENDS = ("mpi4py-openmpi5", "mpi4py-openmpi4", "mpi4py-mpich", "gloo")
LEAST = 110e6  # bytes a second
SIZE = 16 << 20


def main() -> int:
    """1 where a backend is too slow, or did not run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", required=True, help="separated by commas; this machine first")
    parser.add_argument("--backend", nargs="+", default=BACKENDS)
    options = parser.parse_args()
    tokens = [
        sys.executable,
        "-m",
        "stagebench.suite.cli",
        "comm",
        "--json",
        "--op",
        "all-reduce",
        "--hosts",
        options.hosts,
    ]
    tokens += ["--sizes", "4M:16M", "--seconds", "3", "--budget", "0"]
    tokens += [word for name in options.backend for word in ("--backend", name)]
    done = subprocess.run(tokens, stdout=subprocess.PIPE, text=True, check=False)
    if not done.stdout:
        return done.returncode or 1  # it has said why
    found = [verdict(link) for link in json.loads(done.stdout)["links"]]
    return int(not found or not all(found))


def verdict(link: dict) -> bool:
    """Print a line of a backend; whether it is fast enough."""
    seconds = [point["seconds"] for point in link["points"] if point["bytes"] == SIZE]
    name = link["case"]["backend"]
    if not seconds:
        print(f"{name:16} {link['outcome']}: {link['reason']}", flush=True)
        return False
    rate = SIZE / seconds[0]
    print(f"{name:16} {rate / 1e6:6.1f} MB/s {'' if rate >= LEAST else f'FAIL: below {LEAST / 1e6:g}'}", flush=True)
    return rate >= LEAST


if __name__ == "__main__":
    sys.exit(main())
