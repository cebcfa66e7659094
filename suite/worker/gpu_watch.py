"""The activity of a rank's GPUs while its steps are measured: NVML's samples, reduced to means, extremes and unions.

NVIDIA's driver brings NVML, the library; no package is needed.
"""

import ctypes
import threading
import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from suite.worker.messages import GpuUse

LIBRARY = "libnvidia-ml.so.1"
SM, MEMORY = 1, 2  # of nvmlClockType_t
ON_DIE = 0  # of nvmlTemperatureSensors_t
IDLE = 0x1  # a reason for low clocks, as the following; this one slows no work down
REASONS = {
    0x2: "set clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
    0x100: "display clocks",
}
# The functions that return these bits: by their present name, and as drivers before 535 call them.
ASK_REASONS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")


class Memory(ctypes.Structure):
    """nvmlMemory_t, in bytes."""

    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Utilization(ctypes.Structure):
    """nvmlUtilization_t, in per cent of a time that the driver chooses: a sixth of a second to one second."""

    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class Sample(NamedTuple):
    """A sample of one GPU, of all its users; None is a value that the card, or a virtual machine's driver, hides."""

    busy_share: Optional[float]  # the share of the last moments in which a kernel ran
    memory_bytes: Optional[int]  # in use
    watts: Optional[float]
    sm_clock_hz: Optional[float]
    memory_clock_hz: Optional[float]
    celsius: Optional[int]
    reasons: Optional[int]  # bits of IDLE and REASONS


class Card:
    """A GPU that NVML has opened."""

    def __init__(self, library: Any, handle: ctypes.c_void_p, uuid: str) -> None:
        """`library` has been initialised."""
        self._library = library
        self._handle = handle
        self.uuid = uuid

    def sample(self) -> Sample:
        """Return a sample of this moment."""
        used = self._asked("nvmlDeviceGetUtilizationRates", Utilization())
        memory = self._asked("nvmlDeviceGetMemoryInfo", Memory())
        milliwatts = self._number("nvmlDeviceGetPowerUsage")
        sm, of_memory = (self._number("nvmlDeviceGetClockInfo", kind) for kind in (SM, MEMORY))  # MHz
        return Sample(
            busy_share=None if used is None else used.gpu / 100.0,
            memory_bytes=None if memory is None else int(memory.used),
            watts=None if milliwatts is None else milliwatts / 1e3,
            sm_clock_hz=None if sm is None else sm * 1e6,
            memory_clock_hz=None if of_memory is None else of_memory * 1e6,
            celsius=self._number("nvmlDeviceGetTemperature", ON_DIE),
            reasons=self._reasons(),
        )

    def joules(self) -> Optional[float]:
        """Return the energy since the driver was loaded, in joules; None of a GPU older than Volta."""
        found = self._asked("nvmlDeviceGetTotalEnergyConsumption", ctypes.c_ulonglong())
        return None if found is None else found.value / 1e3

    def _reasons(self) -> Optional[int]:
        for name in ASK_REASONS:
            found = self._asked(name, ctypes.c_ulonglong())
            if found is not None:
                return int(found.value)
        return None

    def _number(self, name: str, *which: int) -> Optional[int]:
        found = self._asked(name, ctypes.c_uint(), *which)
        return None if found is None else int(found.value)

    def _asked(self, name: str, answer: Any, *which: int) -> Any:
        """Return `answer`, filled in by the function; None if this driver does not have it, or it fails."""
        function = getattr(self._library, name, None)
        if function is None or function(self._handle, *which, ctypes.byref(answer)):
            return None
        return answer


def cards(uuids: List[str]) -> List[Card]:
    """Return those of these GPUs that NVML knows; none without NVML, which is not loaded without UUIDs."""
    if not uuids:
        return []
    try:
        library = ctypes.CDLL(LIBRARY)
        initialised = library.nvmlInit_v2() == 0
    except (OSError, AttributeError):
        return []
    found = []
    for uuid in uuids if initialised else []:
        handle = ctypes.c_void_p()
        if library.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle)) == 0:
            found.append(Card(library, handle, uuid))
    return found


def in_words(reasons: int) -> List[str]:
    """Return the reasons that hold clocks down; a reason that is newer than this list by its bit."""
    bits = [1 << place for place in range(reasons.bit_length()) if reasons >> place & 1]
    return [REASONS.get(bit, "reason 0x%x" % bit) for bit in bits if bit != IDLE]


EVERY_S = 0.1
REST = 200  # times the CPU time of a sample, until the next one: sampling must not disturb the measurement
QUANTITIES = [name for name in Sample._fields if name != "reasons"]
MEANS = ("busy_share", "watts", "sm_clock_hz", "memory_clock_hz")
# Fields of GpuUse by the quantity whose greatest, or least, value they hold.
MOST = {"memory_bytes": "memory_bytes", "most_watts": "watts", "celsius": "celsius"}
LEAST = {"least_sm_clock_hz": "sm_clock_hz", "least_memory_clock_hz": "memory_clock_hz"}


class Series:
    """A quantity of one GPU: its mean, its least and its greatest value."""

    def __init__(self) -> None:
        """Begin without a value."""
        self._count = 0
        self._sum = 0.0
        self.least: Any = None
        self.most: Any = None

    def add(self, value: Any) -> None:
        """Add a value; None is ignored."""
        if value is None:
            return
        self._count = self._count + 1
        self._sum = self._sum + value
        self.least = value if self.least is None else min(self.least, value)
        self.most = value if self.most is None else max(self.most, value)

    @property
    def mean(self) -> Optional[float]:
        """The mean of the values; None if there are none."""
        return self._sum / self._count if self._count else None


class Seen:
    """The activity of one GPU, from the begin to the end of a measurement."""

    def __init__(self, card: Card) -> None:
        """Begin now."""
        self._card = card
        self._series = {name: Series() for name in QUANTITIES}
        self._reasons: Optional[int] = None
        self._before = card.joules()

    def look(self) -> None:
        """Take a sample."""
        sample = self._card.sample()
        for name, series in self._series.items():
            series.add(getattr(sample, name))
        if sample.reasons is not None:
            self._reasons = (self._reasons or 0) | sample.reasons

    def use(self) -> GpuUse:
        """Return the activity until now."""
        after = self._card.joules()
        found: Dict[str, Any] = {name: self._series[name].mean for name in MEANS}
        for name, quantity in MOST.items():
            found[name] = self._series[quantity].most
        for name, quantity in LEAST.items():
            found[name] = self._series[quantity].least
        return GpuUse(
            uuid=self._card.uuid,
            throttled_by=None if self._reasons is None else in_words(self._reasons),
            joules=None if after is None or self._before is None else after - self._before,
            **found,
        )


class GpuWatch:
    """A watch on some GPUs between `begin` and `end`, repeatable; without any, or without NVML, it does nothing."""

    def __init__(self, uuids: List[str]) -> None:
        """Open NVML if there are GPUs to watch, which may take a while."""
        self._cards = cards(uuids)
        self._seen: List[Seen] = []

    def begin(self) -> None:
        """Begin a new measurement."""
        self._seen = [Seen(card) for card in self._cards]
        self._over = threading.Event()
        if self._cards:
            self._thread = threading.Thread(target=self._run, daemon=True)  # it ends with a rank that fails
            self._thread.start()

    def end(self) -> List[GpuUse]:
        """Return the activity of each GPU since `begin`.

        A last sample is taken now, so a measurement that is shorter than EVERY_S has one, too.
        """
        if self._cards:
            self._over.set()
            self._thread.join()
        for seen in self._seen:
            seen.look()
        return [seen.use() for seen in self._seen]

    def _run(self) -> None:
        rest = EVERY_S
        while not self._over.wait(rest):
            began = _own_time()
            for seen in self._seen:
                seen.look()
            rest = max(EVERY_S, REST * (_own_time() - began))


def _own_time() -> float:
    """Return the CPU seconds of this thread: the time that it waits takes nothing from the measurement."""
    return time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID)


def together(parts: List[Tuple[float, List[GpuUse]]]) -> List[GpuUse]:
    """Merge the activity of the same GPUs in several stretches of time, given with their seconds."""
    seconds = [each for each, _ in parts]
    return [_as_one(seconds, list(uses)) for uses in zip(*(uses for _, uses in parts))]


def _as_one(seconds: List[float], uses: List[GpuUse]) -> GpuUse:
    def known(name: str) -> List[Any]:
        return [value for value in (getattr(use, name) for use in uses) if value is not None]

    found: Dict[str, Any] = {name: _mean(seconds, [getattr(use, name) for use in uses]) for name in MEANS}
    found.update((name, max(known(name), default=None)) for name in MOST)
    found.update((name, min(known(name), default=None)) for name in LEAST)
    reasons = known("throttled_by")
    joules = known("joules")
    return uses[0]._replace(
        throttled_by=sorted(set().union(*reasons)) if reasons else None,
        joules=sum(joules) if len(joules) == len(uses) else None,
        **found,
    )


def _mean(seconds: List[float], values: List[Optional[float]]) -> Optional[float]:
    """Return the weighted mean of the known values; None if there are none."""
    known = [(weight, value) for weight, value in zip(seconds, values) if value is not None]
    whole = sum(weight for weight, _ in known)
    return sum(weight * value for weight, value in known) / whole if known else None
