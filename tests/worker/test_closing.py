"""A framework that never closes costs no results."""

import os
import subprocess
import sys
from pathlib import Path

from suite.worker.messages import Done, Notes, decode

PROGRAM = """
import sys, threading
from suite.worker import main
from suite.worker.ranks import Outbox

class Stuck:
    def close(self):
        threading.Event().wait()

main.LEAVING = 0.2
main.close(Stuck(), Outbox(sys.argv[1], 0))
"""


def test_a_process_that_its_framework_does_not_let_go_ends_as_done_and_its_log_says_where(tmp_path):
    environ = dict(os.environ, PYTHONPATH=str(Path(__file__).parents[2]))
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], env=environ, stderr=subprocess.PIPE, timeout=60
    )
    assert ended.returncode == 0
    assert b"in close" in ended.stderr
    note, done = [decode(line) for line in (tmp_path / "rank-0.jsonl").read_text().splitlines()]
    assert note == Notes({"closing": "ended by force: the framework took longer than 0.2 s"})
    assert done == Done()
