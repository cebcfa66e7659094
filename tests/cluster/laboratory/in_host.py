"""Run as a script in a host of the laboratory: launch what a JSON file asks for, print what came of it."""

import json
import sys
from pathlib import Path

from stagebench.cluster.ssh import Ssh
from stagebench.suite.contracts.case import Placement
from stagebench.suite.contracts.launcher import Request
from stagebench.suite.processes.attempt import Limits, run
from stagebench.suite.worker.messages import Hello, Joined, of_type


def main(asked):
    """One line of JSON: outcome, reason, every rank's host and the address it met at."""
    placement = Placement(nodes=2, launcher="ssh", hosts=tuple(asked["hosts"]))
    folder = Path(asked["folder"])
    command = tuple(asked["command"])
    request = Request(placement, command, Path(asked["python"]), asked["environ"], folder, asked["port"])
    found = run(Ssh().processes(request), 2, folder, Limits(60, asked["silence"]), lambda rank, message: None)
    ranks = [
        (of_type(Hello, sent)[0].host, joined.transport)
        for sent in found.messages.values()
        for joined in of_type(Joined, sent)
    ]
    sys.stdout.write(json.dumps({"outcome": found.outcome, "reason": found.reason, "ranks": ranks}) + "\n")


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
