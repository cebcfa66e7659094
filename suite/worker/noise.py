"""The noise of this host: the time of a computation that is always the same, and the system's counts."""

import contextlib
import hashlib
import os
import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from stagebench.suite.worker import gpu_watch
from stagebench.suite.worker.binding import of_threads
from stagebench.suite.worker.machine import Energy, bytes_of, energy, joules, text_of
from stagebench.suite.worker.messages import GpuUse, HostUse

REFERENCE = bytes(4 << 20)
TIMES = 5
STAT, CPUS = "/proc/stat", "/proc/cpuinfo"
CLOCK = "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_cur_freq"  # kHz
MARKER = b"STAGEBENCH_ATTEMPT"  # in the environment of all processes of a measurement on this host
TICK = os.sysconf("SC_CLK_TCK")
USER, SYSTEM = 11, 12  # fields of /proc/PID/stat, counted from the state; stagebench.suite.worker.behaviour
BUSY, STOLEN = (
    0.03,
    0.02,
)  # shares of a rank's cores from which other programs change a figure; stagebench.suite.analysis.machine
COUNTED = 0.5  # of the time, at least: a system whose CPUs count less does not count them one by one
TOLD_S = 0.2  # the system counts in hundredths of a second: over less time its counts mean nothing
ADDED = ("seconds", "own_cpu_s", "busy_cpu_s", "steal_cpu_s", "cpu_joules", "gpu_joules")


class Counts(NamedTuple):
    """The system's counts so far, in seconds of CPU."""

    time: float
    own: Optional[Dict[int, float]]  # by process
    idle: float  # of the rank's CPUs, as are the next two
    steal: float
    counted: float  # all that the system counts
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
    """A meter of the system's counts on this process's CPUs, and of some GPUs' activity, between `begin` and `end`."""

    def __init__(self, gpus: Sequence[str] = ()) -> None:
        """`gpus` are given by UUID."""
        self._watch, self._cpus = gpu_watch.GpuWatch(list(gpus)), own_cpus()
        self._pids: Optional[List[int]] = None  # of this measurement's processes: a search for them takes milliseconds

    def begin(self) -> None:
        if self._pids is None:
            self._cpus, self._pids = own_cpus(), own_pids()
        self._before = _counts(self._cpus, self._pids)
        self._watch.begin()

    def end(self) -> Optional[HostUse]:
        """Return the counts since `begin`; None if the system does not count."""
        gpus, clock = self._watch.end(), clock_hz(sorted(self._cpus))
        use = self._use(gpus, clock)
        if disturbance(use) < 1.0:
            return use
        self._pids = own_pids()  # a new process of this measurement is no other program
        return self._use(gpus, clock)

    def _use(self, gpus: List[GpuUse], clock: Optional[float]) -> Optional[HostUse]:
        before, after = self._before, _counts(self._cpus, self._pids or [])
        if before is None or after is None:
            return None
        seconds, cores = after.time - before.time, len(self._cpus)
        if after.counted - before.counted < COUNTED * (seconds * cores - cores / TICK):
            return None
        steal = after.steal - before.steal
        return HostUse(
            seconds=seconds,
            own_cpu_s=None if before.own is None or after.own is None else _growth(before.own, after.own),
            busy_cpu_s=max(0.0, seconds * cores - (after.idle - before.idle) - steal),
            steal_cpu_s=steal,
            cores=cores,
            clock_hz=clock,
            cpu_joules=joules(before.processors, after.processors),
            gpu_joules=_sum([gpu.joules for gpu in gpus]) if gpus else None,
            gpus=gpus,
        )


def disturbance(use: Optional[HostUse]) -> float:
    """Return the part of a rank's cores that other programs, or the machine's other guests, used, over BUSY or STOLEN.

    From 1.0 on, they change a figure; 0 if unknown.
    """
    if use is None or use.seconds < TOLD_S:
        return 0.0
    others = 0.0 if use.own_cpu_s is None else use.busy_cpu_s - use.own_cpu_s
    return max(others / BUSY, use.steal_cpu_s / STOLEN, 0.0) / (use.seconds * use.cores)


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
    found = [float(text) * 1e3 for text in (text_of(pattern % core) for core in cores) if text]
    if not found:
        blocks = [block for block in text_of(table).split("\n\n") if block.strip()]
        tables = [dict(_pair(line) for line in block.splitlines()) for block in blocks]
        found = [float(one["cpu MHz"]) * 1e6 for one in tables if "cpu MHz" in one and int(one["processor"]) in cores]
    return sum(found) / len(found) if found else None


def own_cpus() -> Set[int]:
    """Return the CPUs that any thread of this process may use: a framework may bind the first one to a single CPU."""
    return set().union(*of_threads().values())


def own_pids() -> List[int]:
    """Return this measurement's processes on this host that may use this process's CPUs: ranks, readers and servers.

    Empty if nothing marks them, as on hosts that an engine reached without stagebench. This process is one of them,
    even if it was forked before it was marked.
    """
    value, cpus, found = os.environb.get(MARKER), own_cpus(), []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc") if value is not None else [])):
        if pid == os.getpid() or MARKER + b"=" + (value or b"") in bytes_of(f"/proc/{pid}/environ").split(b"\0"):
            with contextlib.suppress(ProcessLookupError):
                if cpus & os.sched_getaffinity(pid):
                    found.append(pid)
    return found


def _counts(cpus: Set[int], pids: List[int]) -> Optional[Counts]:
    spent: Dict[int, float] = {}
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            spent[pid] = time.clock_gettime((~pid << 3) | 2)  # the kernel's clock of a process's time on CPUs
    times = cpu_times(text_of(STAT), cpus)
    return None if times is None else Counts(time.perf_counter(), spent or None, *times, energy())


def cpu_times(text: str, cpus: Set[int]) -> Optional[Tuple[float, float, float]]:
    """Return (idle, stolen, all counted) seconds of some CPUs since their host started, from /proc/stat.

    None if a CPU is missing from it. The system measures idle time, and only samples how the rest was spent.
    """
    rows = {fields[0]: fields[1:9] for fields in map(str.split, text.splitlines()) if fields}
    known = [list(map(int, rows.get(f"cpu{cpu}", ()))) for cpu in cpus]
    if min(map(len, known), default=0) < 8:
        return None
    idle, stolen = sum(row[3] + row[4] for row in known), sum(row[7] for row in known)
    return idle / TICK, stolen / TICK, sum(map(sum, known)) / TICK


def _growth(before: Dict[int, float], after: Dict[int, float]) -> float:
    return sum(spent - before.get(pid, 0.0) for pid, spent in after.items())


def _pair(line: str) -> Tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip(), value.strip()
