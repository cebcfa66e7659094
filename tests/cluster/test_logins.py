"""The login that engines start their daemons through, used as engines use it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.logins import AGENT, write_daemon_login
from suite.contracts.case import Placement
from suite.contracts.launcher import LOGINS, Request


@pytest.mark.parametrize(
    "options", [[], ["-x"], ["-x", "-o", "ConnectionAttempts=10"], ["-l", "me", "-q"]], ids=" ".join
)
def test_options_that_an_engine_or_an_operator_adds_are_not_taken_for_the_host(tmp_path, monkeypatch, options):
    agent = tmp_path / "agent"
    agent.write_text('#!/bin/sh\necho "to $1"\nshift\nexec /bin/sh -c "$*"\n')
    agent.chmod(0o755)
    monkeypatch.setenv(AGENT, str(agent))
    login = write_daemon_login(Request(Placement(), (), Path(sys.executable), {}, tmp_path))
    tokens = [login, *options, "b", "echo", '"it\'s"', "$((1 + 1));", "exit 3"]
    done = subprocess.run(tokens, capture_output=True, text=True, timeout=20)
    assert done.stdout == "to b\nit's 2\n", done.stderr
    (told,) = [json.loads(line) for line in (tmp_path / LOGINS).read_text().splitlines()]
    assert (told["host"], told["code"]) == ("b", 3)
