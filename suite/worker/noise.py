"""The noise of this host: the time of a computation that is always the same, and the system's counts."""

import hashlib
import os
import resource
import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from suite.worker import gpu_watch
from suite.worker.machine import Energy, energy, joules
from suite.worker.messages import HostUse

REFERENCE = bytes(4 << 20)
TIMES = 5
STAT, CPUS = "/proc/stat", "/proc/cpuinfo"
CLOCK = "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_cur_freq"  # kHz
MARKER = b"STAGEBENCH_ATTEMPT"  # in the environment of all processes of a measurement on this host
TICK = os.sysconf("SC_CLK_TCK")
USER, SYSTEM = 11, 12  # fields of /proc/PID/stat, counted from the state
BUSY, STOLEN = 0.10, 0.02  # shares of all cores' time from which other programs change a figure; suite.analysis.machine
TOLD_S = 0.2  # the system counts in hundredths of a second: over less time its counts mean nothing
ADDED = ("seconds", "involuntary_switches", "own_cpu_s", "busy_cpu_s", "steal_cpu_s", "cpu_joules", "gpu_joules")


class Counts(NamedTuple):
    """The system's counts so far, in seconds of CPU."""

    time: float
    switches: int
    own: Optional[Dict[int, float]]  # by process
    busy: float
    steal: float
    processors: Dict[str, Energy]


def reference() -> List[float]:
    """Return the seconds of hashing the same 4 MiB on one core, several times, without any framework.

    All of them take some 15 ms.
    """
    found = []
    for _ in range(TIMES):
        begin = time.perf_counter()
        hashlib.sha256(REFERENCE).digest()
        found.append(time.perf_counter() - begin)
    return found


class Meter:
    """A meter of the system's counts, and of some GPUs' activity, between `begin` and `end`."""

    def __init__(self, gpus: Sequence[str] = ()) -> None:
        """`gpus` are given by UUID."""
        self._watch = gpu_watch.GpuWatch(list(gpus))

    def begin(self) -> None:
        self._before = _counts()
        self._watch.begin()

    def end(self) -> Optional[HostUse]:
        """Return the counts since `begin`; None if the system does not count."""
        gpus = self._watch.end()
        clock, after, before = clock_hz(sorted(os.sched_getaffinity(0))), _counts(), self._before
        if before is None or after is None:
            return None
        return HostUse(
            seconds=after.time - before.time,
            involuntary_switches=after.switches - before.switches,
            own_cpu_s=_growth(before.own, after.own),
            busy_cpu_s=after.busy - before.busy,
            steal_cpu_s=after.steal - before.steal,
            cores=os.cpu_count() or 1,
            clock_hz=clock,
            cpu_joules=joules(before.processors, after.processors),
            gpu_joules=_sum([gpu.joules for gpu in gpus]) if gpus else None,
            gpus=gpus,
        )


def disturbance(use: Optional[HostUse]) -> float:
    """Return the part of the cores that other programs, or the machine's other guests, used, over BUSY or STOLEN.

    From 1.0 on, they change a figure; 0 if unknown.
    """
    if use is None or use.own_cpu_s is None or use.seconds < TOLD_S:
        return 0.0
    cores_s = use.seconds * use.cores
    return max((use.busy_cpu_s - use.own_cpu_s) / (BUSY * cores_s), use.steal_cpu_s / (STOLEN * cores_s), 0.0)


def together(uses: List[Optional[HostUse]]) -> Optional[HostUse]:
    """Merge the counts of several stretches of time; the clock is the last one's. None if any of them is None."""
    known = [use for use in uses if use is not None]
    if not known or len(known) < len(uses):
        return None
    gpus = gpu_watch.together([(use.seconds, use.gpus) for use in known])
    return known[-1]._replace(gpus=gpus, **{name: _sum([getattr(use, name) for use in known]) for name in ADDED})


def _sum(values: List[Any]) -> Any:
    return None if None in values else sum(values)


def clock_hz(cores: List[int], pattern: str = CLOCK, table: str = CPUS) -> Optional[float]:
    """Return the mean clock of these cores now, in Hz; None if the system hides it."""
    found = [float(text) * 1e3 for text in (_text(pattern % core) for core in cores) if text]
    if not found:
        blocks = [block for block in _text(table).split("\n\n") if block.strip()]
        tables = [dict(_pair(line) for line in block.splitlines()) for block in blocks]
        found = [float(one["cpu MHz"]) * 1e6 for one in tables if "cpu MHz" in one and int(one["processor"]) in cores]
    return sum(found) / len(found) if found else None


def _counts() -> Optional[Counts]:
    machine = host_cpu(_text(STAT))
    if machine is None:
        return None
    switches = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
    return Counts(time.perf_counter(), switches, own_cpu(), *machine, energy())


def host_cpu(text: str) -> Optional[Tuple[float, float]]:
    """Return (busy, stolen) CPU seconds of a host since it started, from /proc/stat; None if it is another text."""
    first = text.partition("\n")[0].split()
    if len(first) < 9 or first[0] != "cpu":
        return None
    user, nice, system, _idle, _waiting, irq, softirq, steal = (int(one) for one in first[1:9])
    return (user + nice + system + irq + softirq) / float(TICK), steal / float(TICK)


def own_cpu() -> Optional[Dict[int, float]]:
    """Return the CPU seconds so far of each process of this measurement on this host: ranks, readers and servers.

    None if nothing marks them, as on hosts that an engine reached without stagebench. This process is one of them, even
    if it was forked before it was marked.
    """
    value = os.environb.get(MARKER)
    if value is None:
        return None
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        if int(name) == os.getpid() or MARKER + b"=" + value in _bytes("/proc/%s/environ" % name).split(b"\0"):
            fields = _text("/proc/%s/stat" % name).rpartition(")")[2].split()
            if fields:
                found[int(name)] = (int(fields[USER]) + int(fields[SYSTEM])) / float(TICK)
    return found


def _growth(before: Optional[Dict[int, float]], after: Optional[Dict[int, float]]) -> Optional[float]:
    if before is None or after is None:
        return None
    return sum(spent - before.get(pid, 0.0) for pid, spent in after.items())


def _pair(line: str) -> Tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip(), value.strip()


def _text(path: str) -> str:
    return _bytes(path).decode("utf-8", "replace")


def _bytes(path: str) -> bytes:
    """Return a file's content; empty if it cannot be read: a process may have ended, or be another person's."""
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except OSError:
        return b""
