"""What a person sees of a run: the real program on a terminal, narrow and wide, screen by screen."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pyte
import pytest

from stagebench import suite

HEIGHT = 30
PAUSE = 0.1  # seconds without a word, and what stands there is what a person sees
RUN = ("--adapter", "reference", "--workload", "mnist_small", "--batch", "2,4", "--precision", "float64", "-o", "x")
SHORT = "sampling.processes=1 sampling.seconds=1 sampling.steps=3 sampling.warmup_steps=1 sampling.warmup_limit=1"


def screens(width: int, arguments: tuple[str, ...], folder: Path) -> tuple[int, list[list[str]]]:
    """The exit code, and the lines of the screen whenever the program pauses."""
    screen = pyte.Screen(width, HEIGHT)
    stream, seen = pyte.ByteStream(screen), []
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, width, 0, 0))
    root = Path(suite.__file__).parent.parent
    environ = {**os.environ, "TERM": "xterm-256color", "PYTHONPATH": str(root)}
    for name in ("COLUMNS", "LINES", "NO_COLOR", "CI"):
        environ.pop(name, None)
    command, pipes = [sys.executable, "-m", "stagebench.suite.cli"], {"stdin": its, "stdout": its, "stderr": its}
    with subprocess.Popen([*command, *arguments], cwd=folder, env=environ, **pipes) as program:
        os.close(its)
        while True:
            try:
                written = os.read(ours, 1 << 16)
            except OSError:  # EIO: nobody holds the other end any more
                break
            stream.feed(written)
            if not select.select([ours], [], [], PAUSE)[0]:  # nor half of a view
                seen.append([line.rstrip() for line in screen.display])
    os.close(ours)
    seen.append([line.rstrip() for line in screen.display])
    return program.returncode, seen


@pytest.mark.slow
@pytest.mark.parametrize("width", [80, 200])
def test_a_run_on_a_terminal(width, tmp_path):
    chosen = [word for value in SHORT.split() for word in ("--set", value)]
    code, seen = screens(width, ("run", *RUN, "--no-proofs", *chosen), tmp_path)
    last = [line for line in seen[-1] if line]
    assert code == 0, last
    views = [lines for lines in seen if any("─" * width == line for line in lines)]
    # Below the rule stand the case, its ranks, and the bar: a line that was too long would have pushed the bar off.
    for lines in views:
        below = [line for line in lines[lines.index("─" * width) + 1 :] if line]
        if len(below) > 1:
            assert re.match(r"[━╸╺ ]+ \d/2 processes  \d+:\d\d so far", below[-1]), below
            assert len(below) <= 3, below
    shown = {line for lines in views for line in lines}
    assert any(re.match(r"   rank 0  native: .*\bstep \d", line) for line in shown)
    assert any(re.match(r"   rank 0  staged: .*about [\d.]+ samples/s$", line) for line in shown)
    assert any(re.search(r"about \d+:\d\d left$", line) for line in shown)
    assert any(re.match(r"✓ reference/single mnist_small .* samples/s", line) for line in shown)
    assert not any("so far" in line for line in last), "the view goes at the end"
    assert "2 of 2 processes measured in" in "\n".join(last)
    assert [line for line in last if line.startswith(("x: ", "Next: "))] == [
        "x: 2 ok",
        "Next: stagebench report x -o x/report",
    ]
