"""Run as a script: start a program; when it has ended, or SIGTERM comes, end all that it has started.

    python guard.py PARENT PATIENCE LEFT PROGRAM ARGUMENT ...

Whatever the program's descendants do to their session, their variables or their own parents, the kernel hands them to
this process (prctl(2), PR_SET_CHILD_SUBREAPER). They get SIGTERM, and SIGKILL after PATIENCE seconds, or LEFT where the
program has ended by itself. Then this process ends as the program did: by the same signal, where it was one.

PARENT is the controller. One that is killed can end nothing: the kernel sends SIGTERM here in its place
(PR_SET_PDEATHSIG), and SIGKILL to the program should this process be killed. To the kernel "parent" is the thread that
started us, so it must live as long as we may: who starts one waits for it. Elsewhere than on Linux it only runs the
program.
"""

import ctypes
import os
import resource
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
CANNOT_START = 127  # as a shell says it
AWAITED = {signal.SIGCHLD, signal.SIGTERM}  # blocked, so that none comes between two looks
FIRST = 1000  # the most there is: where memory is used up, the kernel kills what is measured, not what measures
LOOK = 0.1  # seconds between two SIGKILLs: what is being killed may still have forked


def guarded(tokens: Sequence[str], patience: float, left: float) -> list[str]:
    """The tokens to start a program with, so that what it starts ends with it, and all of it with us."""
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), f"{patience:g}", f"{left:g}", *tokens]


def main() -> None:
    parent, patience, left, tokens = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), sys.argv[4:]
    if sys.platform != "linux":
        become(tokens)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)
    control = ctypes.CDLL(None).prctl
    control(PR_SET_CHILD_SUBREAPER, 1)
    control(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it died before we asked
        os._exit(128 + signal.SIGTERM)
    ours = standing(FIRST)  # of the program from its first moment on, which takes memory, too
    guard, program = os.getpid(), os.fork()
    if program == 0:
        os.setpgid(0, 0)  # a program that signals its process group does not mean us
        control(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard:
            os._exit(128 + signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        become(tokens)
    standing(ours)
    children = Children(program)
    while children.status is None and signal.sigwait(AWAITED) == signal.SIGCHLD:
        children.reap()
    leave(children.end(patience if children.status is None else left))


def standing(score: int) -> int:
    """Where this process stands among those that the kernel kills for want of memory, from now on; what it was."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "r+") as file:
        before = int(file.read())
        file.seek(0)
        file.write(str(score))
        return before
    return score


def become(tokens: list[str]) -> None:
    """Run the program in this process."""
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and exec would keep that
        signal.signal(ignored, signal.SIG_DFL)
    try:
        os.execvp(tokens[0], tokens)
    except OSError as error:
        os.write(2, f"cannot start {tokens[0]}: {error.strerror}\n".encode())
        os._exit(CANNOT_START)


class Children:
    """The program and what the kernel hands to us."""

    def __init__(self, program: int) -> None:
        self._program, self._any = program, True
        self.status: int | None = None  # the program's, as waitpid(2) has it, once it has ended

    def reap(self) -> None:
        """Wait for those that have ended."""
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self._program:
                    self.status = ended[1]
        except ChildProcessError:
            self._any = False

    def end(self, patience: float) -> int:
        """The program's status, when none is left."""
        self.reap()
        deadline = time.monotonic() + patience
        if self._any:
            signal_descendants(signal.SIGTERM)
        while self._any:
            seconds = deadline - time.monotonic()
            if seconds <= 0:
                signal_descendants(signal.SIGKILL)
            signal.sigtimedwait({signal.SIGCHLD}, seconds if seconds > 0 else LOOK)
            self.reap()
        assert self.status is not None
        return self.status


def signal_descendants(number: int) -> None:
    """Send a signal to all processes below this one."""
    children: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError), open(f"/proc/{name}/stat", "rb") as stream:
            parent = int(stream.read().rpartition(b")")[2].split()[1])
            children.setdefault(parent, []).append(int(name))
    waiting = [os.getpid()]
    while waiting:
        below = children.get(waiting.pop(), [])
        waiting += below
        for pid in below:
            with suppress(OSError):  # gone, or another user's
                os.kill(pid, number)


def leave(status: int) -> None:
    """End as the program did."""
    if os.WIFEXITED(status):
        os._exit(os.WEXITSTATUS(status))
    number = os.WTERMSIG(status)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the program has left the dump, if anybody
    with suppress(OSError):  # SIGKILL cannot be set, and need not
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    os._exit(128 + number)


if __name__ == "__main__":
    main()
