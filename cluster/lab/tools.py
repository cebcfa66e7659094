"""The system's programs that build namespaces and links."""

import subprocess

from suite.errors import Unavailable

SECONDS = 30.0


def run(*tokens: str) -> str:
    """What a program prints; Unavailable tells of the one that failed, with its own words."""
    done = subprocess.run(tokens, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=SECONDS)
    if done.returncode != 0:
        printed = done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}"
        raise Unavailable(f"`{' '.join(tokens)}` failed: {printed}")
    return done.stdout


def works(*tokens: str) -> bool:
    return subprocess.run(tokens, capture_output=True, stdin=subprocess.DEVNULL, timeout=SECONDS).returncode == 0
