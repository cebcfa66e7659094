"""Asks a program a question: short-lived, without input, and nothing left of it, whatever becomes of it or of us."""

import subprocess
from collections.abc import Sequence

from suite.processes.guard import CANNOT_START, guarded
from suite.processes.inherited import inherited

CANNOT = "cannot start "  # begins what the guard says of a program that cannot be started
FORCED = 5.0  # seconds for its guard to end what is late


def ask(tokens: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str]:
    """Run it to its end in the root folder; OSError when it cannot be started, TimeoutExpired when it is late."""
    with subprocess.Popen(
        guarded(tokens, 0.0, 0.0),
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
        except BaseException:  # late, or a person's interrupt: its guard ends it with all it started
            program.terminate()
            try:
                program.wait(FORCED)
            except subprocess.TimeoutExpired:
                program.kill()
            raise
    if program.returncode == CANNOT_START and err.startswith(CANNOT):
        raise OSError(0, err.strip().rpartition(": ")[2], tokens[0])
    return subprocess.CompletedProcess(tokens, program.returncode, out, err)
