"""Do the gradients that a record counts cross the wire, all of them, and nothing beside them?

Makes a laboratory of two hosts (root) and trains in it. The kernel counts what each host's card sends and receives. The
record says how many steps were taken, those set aside too, and how many bytes a rank contributes to an exchange. Two
runs of one case, one with many more steps, take what joining and the first weights cost out of the difference:

    counted a step  = (bytes of the longer run - of the shorter) / (its steps - the other's)
    expected a step = gradient bytes x 2 (n - 1) / n, a ring's share on n ranks

A ring sends as much as it receives, on every host. The kernel counts headers too: 66 bytes (Ethernet, IP, TCP with
timestamps) on up to eight packets of 1448 bytes that it handles as one, which is 0.6 %, and acknowledgements of what
the other host sends, no more than as much again. What the ranks ask each other beside their gradients comes on top: a
few hundred bytes a step. Fewer bytes than the gradients would be as wrong as more. The last line is JSON.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path

from figures import figure, told

LAB = "bytes-check"
STEPS = (20, 220)
WITHIN = 5.0  # % more or less than the gradients
HOSTS, DIRECTIONS = ("first", "second"), {"tx": "sent", "rx": "received"}
COUNTERS = tuple(product(HOSTS, DIRECTIONS))
CASES = (("pytorch", "ddp"), ("caffempi", "data_parallel"), ("tensorflow", "multiworker_mirrored"))


def main() -> int:
    """1 where the bytes are too far from the gradients', or a case did not run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", default="mnist_small")
    parser.add_argument("--adapter", nargs="+", default=[name for name, _ in CASES])
    options = parser.parse_args()
    stagebench("lab", "up", "2", "--rate", "1gbit", "--name", LAB)
    try:
        chosen = [case for case in CASES if case[0] in options.adapter]
        figures = [each for case in chosen for each in compared(*case, options.workload)]
    finally:
        stagebench("lab", "down", "--name", LAB)
    return told(figures)


def compared(adapter: str, strategy: str, workload: str) -> list[dict]:
    """A figure of each host and direction; one without a value if the case did not run."""
    what = f"{adapter} {strategy}, {workload}, 2 hosts: bytes {{}}, apart from the gradients'"
    bounds = {"at_least": -WITHIN, "at_most": WITHIN}
    try:
        (few, least, _), (many, most, gradients) = (counted(adapter, strategy, workload, steps) for steps in STEPS)
    except (subprocess.CalledProcessError, ValueError) as error:
        return [figure(what.format("sent"), None, "%", why=str(error), **bounds)]
    expected, found = gradients * 2 * (2 - 1) / 2, []
    for host, direction in COUNTERS:
        title = what.format(f"{DIRECTIONS[direction]} by the {host} host")
        a_step = (most[host, direction] - least[host, direction]) / (many - few)
        print(f"{title}: {a_step:,.0f} counted a step, {expected:,.0f} expected", flush=True)
        found.append(figure(title, round(100 * (a_step / expected - 1), 2), "%", **bounds))
    return found


def counted(adapter: str, strategy: str, workload: str, steps: int) -> tuple[int, dict[tuple[str, str], int], int]:
    """(steps taken, bytes meanwhile by host and direction, bytes of a rank's gradients)."""
    with tempfile.TemporaryDirectory() as folder:
        run = ["run", "--adapter", adapter, "--strategy", strategy, "--workload", workload, "--batch", "8"]
        run += ["--nodes", "2", "--ranks", "1", "--passes", "native", "--processes", "1", "--no-proofs"]
        run += ["--seconds", "0", "--steps", str(steps), "-o", folder + "/run"]
        before = counters()
        stagebench("lab", "exec", "--name", LAB, f"{LAB}1", "--", *COMMAND, *run, "--hosts", f"{LAB}1,{LAB}2")
        after = counters()
        (path,) = Path(folder, "run", "records").glob("*.json")
        record = json.loads(path.read_text())
    if record["outcome"] != "ok":
        raise ValueError(f"{record['outcome']}: {record['reason']}")
    native = record["ranks"][0]["passes"]["native"]
    taken = sum(len(native.get(name) or ()) for name in ("warmup_s", "step_s", "set_aside_s"))
    return taken, {each: after[each] - before[each] for each in COUNTERS}, native["gradient_bytes"]


def counters() -> dict[tuple[str, str], int]:
    """Bytes of each host's card by direction, as its kernel counts them."""
    found = {}
    for number, host in enumerate(HOSTS, 1):
        words = ["ip", "-n", f"{LAB}{number}", "-json", "-stats", "link", "show", "eth0"]
        (card,) = json.loads(subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout)
        found.update({(host, direction): card["stats64"][direction]["bytes"] for direction in DIRECTIONS})
    return found


COMMAND = (sys.executable, "-m", "stagebench.suite.cli")


def stagebench(*words: str) -> None:
    subprocess.run([*COMMAND, *words], stdout=sys.stderr, check=True, env={**os.environ, "NO_COLOR": "1"})


if __name__ == "__main__":
    sys.exit(main())
