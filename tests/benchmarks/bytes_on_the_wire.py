"""Do the gradients that a record counts cross the wire, all of them, and nothing beside them?

Makes a laboratory of two hosts (root) and trains in it. The kernel counts what the first host's card sends, and the
record says how many steps were taken and how many bytes a rank contributes to an exchange. Two runs of one case, one
with many more steps, take what joining and the first weights cost out of the difference:

    counted a step  = (bytes sent by the longer run - by the shorter) / (its steps - the other's)
    expected a step = gradient bytes x 2 (n - 1) / n, a ring's share on n ranks

The kernel counts headers too: 66 bytes (Ethernet, IP, TCP with timestamps) on up to eight packets of 1448 bytes that
it handles as one, which is 0.6 %, and acknowledgements of what the other host sends, no more than as much again. What
the ranks ask each other beside their gradients comes on top: a few hundred bytes a step. The last line is JSON.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

LAB = "bytes-check"
STEPS = (20, 220)
AT_MOST = 5.0  # % more or less than the gradients
CASES = (("pytorch", "ddp"), ("caffempi", "data_parallel"), ("tensorflow", "multiworker_mirrored"))


def main() -> int:
    """1 where the bytes are too far from the gradients', or a case did not run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", default="mnist_small")
    parser.add_argument("--adapter", nargs="+", default=[name for name, _ in CASES])
    options = parser.parse_args()
    stagebench("lab", "up", "2", "--rate", "1gbit", "--name", LAB)
    try:
        figures = [figure(*case, options.workload) for case in CASES if case[0] in options.adapter]
    finally:
        stagebench("lab", "down", "--name", LAB)
    print(json.dumps({"figures": figures}))
    return int(any(each["value"] is None or abs(each["value"]) > AT_MOST for each in figures))


def figure(adapter: str, strategy: str, workload: str) -> dict:
    what = f"{adapter} {strategy}, {workload}, 2 hosts: bytes sent beyond the gradients"
    try:
        (few, least, _), (many, most, gradients) = (sent(adapter, strategy, workload, steps) for steps in STEPS)
    except (subprocess.CalledProcessError, ValueError) as error:
        return {"what": what, "value": None, "unit": "%", "at_most": AT_MOST, "why": str(error)}
    counted, expected = (most - least) / (many - few), gradients * 2 * (2 - 1) / 2
    print(f"{what}: {counted:,.0f} counted a step, {expected:,.0f} expected", flush=True)
    return {"what": what, "value": round(100 * (counted / expected - 1), 2), "unit": "%", "at_most": AT_MOST}


def sent(adapter: str, strategy: str, workload: str, steps: int) -> tuple[int, int, int]:
    """(steps taken, bytes that the first host sent meanwhile, bytes of a rank's gradients)."""
    with tempfile.TemporaryDirectory() as folder:
        run = ["run", "--adapter", adapter, "--strategy", strategy, "--workload", workload, "--batch", "8"]
        run += ["--nodes", "2", "--ranks", "1", "--passes", "native", "--processes", "1", "--no-proofs"]
        run += ["--seconds", "0", "--steps", str(steps), "-o", folder + "/run"]
        before = counter()
        stagebench("lab", "exec", "--name", LAB, f"{LAB}1", "--", *COMMAND, *run, "--hosts", f"{LAB}1,{LAB}2")
        after = counter()
        (path,) = Path(folder, "run", "records").glob("*.json")
        record = json.loads(path.read_text())
    if record["outcome"] != "ok":
        raise ValueError(f"{record['outcome']}: {record['reason']}")
    native = record["ranks"][0]["passes"]["native"]
    return len(native["warmup_s"]) + len(native["step_s"]), after - before, native["gradient_bytes"]


def counter() -> int:
    """Bytes that the first host's card has sent, as its kernel counts them."""
    words = ["ip", "-n", f"{LAB}1", "-json", "-stats", "link", "show", "eth0"]
    (found,) = json.loads(subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout)
    return found["stats64"]["tx"]["bytes"]


COMMAND = (sys.executable, "-m", "suite.cli")


def stagebench(*words: str) -> None:
    subprocess.run([*COMMAND, *words], stdout=sys.stderr, check=True, env={**os.environ, "NO_COLOR": "1"})


if __name__ == "__main__":
    sys.exit(main())
