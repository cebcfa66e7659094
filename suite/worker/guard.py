"""Run as a script: start a program, and end all that it has started when it ends or is to end.

    python guard.py OPTION ... PROGRAM ARGUMENT ...

    --parent=PID         end the program when this process, the guard's parent, ends
    --lifeline=SECONDS   end it when standard input closes, or is silent for so long; the program's own input is empty
    --patience=SECONDS   between SIGTERM and SIGKILL
    --left=SECONDS       the same for processes that a program leaves behind when it ends
    --report=FILE        append a line to this file if the kernel of this host killed processes to free memory
    --login=SECONDS      be the near end of a lifeline: see `log_in`; takes no other option

It is the same guard everywhere: the controller starts its own programs behind one (`guarded`), and ranks on other hosts
run behind a copy of this file, which a login, an MPI's daemon or a task of Spark or Ray has started there.

Whatever the descendants of a program do to their session, their variables or their parents, the kernel hands them to
the guard (prctl(2), PR_SET_CHILD_SUBREAPER), which ends them. Then the guard ends as the program did: by the same
signal, or, behind a lifeline, with 128 + N for signal N, because a login passes on only an exit code.

A parent that is killed can end nothing: the kernel sends SIGTERM to the guard in its place (PR_SET_PDEATHSIG), and
SIGKILL to the program if the guard is killed. To the kernel, the parent is the *thread* that started the guard, so this
thread must live as long as the guard may.

Oldest Python: 3.6, standard library only. A guard starts before every rank, so slow modules (typing, json, socket,
subprocess) are not imported at the top.
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
CANNOT_START = 127  # a shell's exit code for it
END = {signal.SIGTERM, signal.SIGHUP, signal.SIGINT}
LIFELINE_ENDED = signal.SIGUSR1  # from a thread of the guard's own
AWAITED = END | {LIFELINE_ENDED, signal.SIGCHLD}  # blocked, and taken one at a time: none is lost between two waits
OOM_FIRST = 1000  # the highest score: the kernel kills what is measured before what measures
LOOK = 0.1  # seconds between two SIGKILLs: a process that is being killed may still have forked
LOGINS = "STAGEBENCH_LOGINS"  # the variable that names the file of `log_in`
SIGN_OF_LIFE = b"."


def guarded(tokens: Sequence, patience: float, left: float) -> list:
    """Return the tokens that start a program behind a guard, which lives as long as this thread at most."""
    options = [f"--parent={os.getpid()}", f"--patience={patience:g}", f"--left={left:g}"]
    return [sys.executable, "-I", "-S", __file__, *options, *tokens]


def main(arguments: list) -> None:
    """Do what the options ask for; see above."""
    options: dict = {}
    while arguments[0].startswith("--"):
        name, _, value = arguments[0].partition("=")
        options[name] = value
        arguments = arguments[1:]
    if "--login" in options:
        log_in(arguments, float(options["--login"]))
    else:
        guard(arguments, options)


def guard(tokens: list, options: dict) -> None:
    """Run the program behind this process to its end, and end as it did."""
    # Where a parent ignores SIGCHLD, so does what it starts: the kernel then collects the program and reports no end.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    if "--parent" in options:
        die_with_parent(int(options["--parent"]), signal.SIGTERM)
    lifeline = options.get("--lifeline")
    kills = oom_kills()
    # The program has the highest score from its start on, because it allocates from its start on.
    own_score = set_oom_score(OOM_FIRST)
    guard_pid = os.getpid()
    program = os.fork()
    if program == 0:
        os.setpgid(0, 0)  # a program that signals its process group does not mean the guard
        die_with_parent(guard_pid, signal.SIGKILL)
        if lifeline:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        become(tokens)
    set_oom_score(own_score)
    if lifeline:
        from threading import Thread

        Thread(target=hold_lifeline, args=(float(lifeline),), daemon=True).start()
    children = Children(program)
    received = int(signal.SIGCHLD)
    while children.status is None and received == signal.SIGCHLD:
        received = int(signal.sigwait(AWAITED))
        children.reap()
    status = children.end(float(options["--patience" if children.status is None else "--left"]))
    if "--report" in options and oom_kills() > kills:
        report_oom_kills(options["--report"], oom_kills() - kills)
    if lifeline:
        os._exit(exit_code(status, received))
    leave(status)


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process; see its manual page in section 2."""
    ctypes.CDLL(None).prctl(option, value)


def die_with_parent(parent: int, number: int) -> None:
    """Have the kernel send this process a signal when its parent ends; end now if the parent has ended already."""
    prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(128 + number)


def become(tokens: list) -> None:
    """Run the program in this process."""
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and exec would keep that
        signal.signal(ignored, signal.SIG_DFL)
    try:
        os.execvp(tokens[0], tokens)
    except OSError as error:
        os.write(2, f"cannot start {tokens[0]}: {error.strerror}\n".encode())
        os._exit(CANNOT_START)


class Children:
    """The program, and the descendants of it that the kernel hands to this process."""

    def __init__(self, program: int) -> None:
        self._program = program
        self._any = True
        self.status: "int | None" = None  # the program's, as waitpid(2) returns it, once it has ended

    def reap(self) -> None:
        """Collect the children that have ended, and the program's status."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self._program:
                    self.status = status
        except ChildProcessError:
            self._any = False

    def end(self, patience: float) -> int:
        """End all of them, by SIGTERM and, `patience` seconds later, SIGKILL; return the program's status."""
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
    for pid in descendants(os.getpid()):
        with suppress(OSError):  # it has ended, or is another user's
            os.kill(pid, number)


def descendants(pid: int) -> list:
    """Return the processes below one, parents before their children."""
    children: dict = {}  # by their parent
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError), open(f"/proc/{name}/stat", "rb") as stream:
            parent = int(stream.read().rpartition(b")")[2].split()[1])
            children.setdefault(parent, []).append(int(name))
    found = [pid]
    for parent in found:
        found += children.get(parent, [])
    return found[1:]


def leave(status: int) -> None:
    """End as the status of waitpid(2) says: with the exit code, or by the signal."""
    if os.WIFEXITED(status):
        os._exit(os.WEXITSTATUS(status))
    number = os.WTERMSIG(status)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the program has written the dump, if there is to be one
    with suppress(OSError):  # SIGKILL cannot be set, and need not
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    os._exit(128 + number)


# --- both ends of a lifeline -------------------------------------------------------


def hold_lifeline(seconds: float) -> None:
    """Wake the guard when standard input closes, or nothing comes through it for `seconds`."""
    from select import select

    try:
        while select([0], [], [], seconds)[0]:
            if not os.read(0, 4096):
                return
        os.write(2, b"ended: no sign of the controller came for %g s\n" % seconds)
    finally:
        os.kill(os.getpid(), LIFELINE_ENDED)


def exit_code(status: int, received: int) -> int:
    """Return the exit code by which a login reports a program's end; `received` is the last signal to the guard."""
    if os.WIFSIGNALED(status):
        return 128 + os.WTERMSIG(status)
    # A program may answer a signal of another process with 0, and would pass for one that was done.
    return os.WEXITSTATUS(status) or (128 + received if received in END else 0)


def log_in(tokens: list, seconds: float) -> None:
    """Run a login, PROGRAM ... HOST COMMAND, whose standard input is the lifeline of a guard on that host.

    A sign of life goes there every `seconds`. SIGTERM closes the lifeline; then the guard ends its program, and with
    that the login. This process ends as the other host's program did. If STAGEBENCH_LOGINS names a file, the end goes
    into that file and this process always ends well: an engine that started it would hide a rank's end behind it.
    """
    from subprocess import PIPE, Popen
    from threading import Thread

    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # inherited: a signal to the whole group must not cut the login
    login = Popen(tokens, stdin=PIPE)
    assert login.stdin is not None
    lifeline = login.stdin.fileno()
    signal.signal(signal.SIGTERM, lambda *_: os.dup2(os.open(os.devnull, os.O_WRONLY), lifeline))
    Thread(target=give_signs_of_life, args=(lifeline, seconds), daemon=True).start()
    code = login.wait()
    file = os.environ.get(LOGINS)
    if file:
        append(file, {"host": tokens[-2], "code": code, "time_s": time.time()})
    elif code < 0 or 128 < code < 160:
        leave(-code if code < 0 else code - 128)  # the status of an end by this signal
    else:
        os._exit(code)


def give_signs_of_life(lifeline: int, seconds: float) -> None:
    """Write a sign of life every `seconds`."""
    while True:
        with suppress(OSError):  # the login finds out itself that there is no reader
            os.write(lifeline, SIGN_OF_LIFE)
        time.sleep(seconds)


# --- memory ------------------------------------------------------------------------


def set_oom_score(score: int) -> int:
    """Set how early the kernel kills this process when memory runs out; return the score until now."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "r+") as file:
        before = int(file.read())
        file.seek(0)
        file.write(str(score))
        return before
    return score


def oom_kills(root: str = "/") -> int:
    """Return how many processes the kernel has killed because memory ran out; 0 if no file counts them.

    The count is of this process's control group (version 2 or 1), else of the whole host.
    """
    files = []
    for number, controllers, path in control_groups(root):
        if number == "0":
            files.append(f"sys/fs/cgroup{path}/memory.events")
        elif "memory" in controllers.split(","):
            files.append(f"sys/fs/cgroup/memory{path}/memory.oom_control")
    files.append("proc/vmstat")
    counts = [line.split()[1] for name in files for line in lines_of(root + name) if line.startswith("oom_kill ")]
    return int(counts[0]) if counts else 0


def control_groups(root: str = "/") -> list:
    """Return this process's control groups: the hierarchy's number (0: version 2), its controllers, the path in it."""
    return [line.split(":", 2) for line in lines_of(f"{root}proc/self/cgroup")]


def lines_of(path: str) -> list:
    """Return the lines of a file of the system's; none if there is no such file."""
    try:
        with open(path) as stream:
            return stream.read().splitlines()
    except OSError:
        return []


def report_oom_kills(file: str, processes: int) -> None:
    """Report the kills as `stagebench.suite.contracts.engine_messages.OomKills`."""
    from socket import gethostname

    with suppress(OSError):
        append(file, {"type": "oom kills", "host": gethostname(), "processes": processes})


def append(file: str, message: dict) -> None:
    """Append a message to a file of JSON lines."""
    import json

    with open(file, "a") as stream:
        stream.write(f"{json.dumps(message)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
