"""Which commit of a person's own repository a command ran in: what a history of runs is about."""

import subprocess
from pathlib import Path

from suite.processes.query import ask


def commit_of(folder: Path) -> str:
    """The full hash, with "-dirty" where tracked files have changed; "" outside a git repository, or without git."""
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--exclude=*", "--abbrev=40"]
    try:
        done = ask(command, 10.0)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
