"""Asks a program a question: short-lived, without input, and nothing left of it when it does not answer."""

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress

from suite.environments.inherited import inherited


def ask(tokens: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str]:
    """Run it to its end in the root folder; OSError when it cannot be started, TimeoutExpired when it is late."""
    with subprocess.Popen(
        tokens,
        env=inherited(),
        cwd="/",  # `python -c` looks for modules where it stands: nothing of ours may be found there
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as program:
        try:
            out, err = program.communicate(timeout=seconds)
        except BaseException:  # late, or a person's interrupt: end it with all it started
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(tokens, program.returncode, out, err)
