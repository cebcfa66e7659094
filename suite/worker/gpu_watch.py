"""The activity of a rank's GPUs while its steps are measured: NVML's samples, reduced to means, extremes and unions.

NVIDIA's driver brings NVML, the library; no package is needed.
"""

import ctypes
import threading
import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from stagebench.suite.worker.messages import GpuUse

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


class Card(NamedTuple):
    """A GPU that NVML has opened; `library` has been initialised."""

    library: Any
    handle: ctypes.c_void_p
    uuid: str

    def sample(self) -> GpuUse:
        """Return the activity at this moment."""
        used = self._asked("nvmlDeviceGetUtilizationRates", Utilization())
        memory = self._asked("nvmlDeviceGetMemoryInfo", Memory())
        watts = self._number("nvmlDeviceGetPowerUsage", unit=1e-3)
        sm, of_memory = (self._number("nvmlDeviceGetClockInfo", kind, unit=1e6) for kind in (SM, MEMORY))
        reasons = (self._asked(name, ctypes.c_ulonglong()) for name in ASK_REASONS)
        return GpuUse(
            self.uuid,
            busy_share=used and used.gpu / 100.0,
            memory_bytes=memory and int(memory.used),
            watts=watts,
            most_watts=watts,
            sm_clock_hz=sm,
            least_sm_clock_hz=sm,
            memory_clock_hz=of_memory,
            least_memory_clock_hz=of_memory,
            celsius=self._number("nvmlDeviceGetTemperature", ON_DIE),
            throttled_by=next((in_words(found.value) for found in reasons if found is not None), None),
        )

    def joules(self) -> Optional[float]:
        """Return the energy since the driver was loaded, in joules; None of a GPU older than Volta."""
        found = self._asked("nvmlDeviceGetTotalEnergyConsumption", ctypes.c_ulonglong())
        return None if found is None else found.value / 1e3

    def _number(self, name: str, *which: int, unit: Any = 1) -> Any:
        found = self._asked(name, ctypes.c_uint(), *which)
        return None if found is None else found.value * unit

    def _asked(self, name: str, answer: Any, *which: int) -> Any:
        """Return `answer`, filled in by the function; None if this driver does not have it, or it fails."""
        function = getattr(self.library, name, None)
        if function is None or function(self.handle, *which, ctypes.byref(answer)):
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
    return [REASONS.get(bit, f"reason 0x{bit:x}") for bit in bits if bit != IDLE]


EVERY_S = 0.1
REST = 200  # times the CPU time of a sample, until the next one: sampling must not disturb the measurement
MEANS = ("busy_share", "watts", "sm_clock_hz", "memory_clock_hz")
MOST = ("memory_bytes", "most_watts", "celsius")
LEAST = ("least_sm_clock_hz", "least_memory_clock_hz")


class GpuWatch:
    """A watch on some GPUs between `begin` and `end`, repeatable; without any, or without NVML, it does nothing."""

    def __init__(self, uuids: List[str]) -> None:
        """Open NVML if there are GPUs to watch, which may take a while."""
        self._cards = cards(uuids)
        self._looks, self._uses = 0, []  # type: int, List[GpuUse]

    def begin(self) -> None:
        """Begin a new measurement."""
        self._looks, self._before = 0, [card.joules() for card in self._cards]
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
        self._look()
        after = [card.joules() for card in self._cards]
        joules = [None if None in both else both[1] - both[0] for both in zip(self._before, after)]  # type: ignore[operator]
        return [use._replace(joules=spent) for use, spent in zip(self._uses, joules)]

    def _look(self) -> None:
        """Merge a sample into those before it at once: a training of days takes a million."""
        sample = [card.sample() for card in self._cards]
        self._uses = together([(self._looks, self._uses), (1.0, sample)]) if self._looks else sample
        self._looks += 1

    def _run(self) -> None:
        rest = EVERY_S
        while not self._over.wait(rest):
            began = _own_time()
            self._look()
            rest = max(EVERY_S, REST * (_own_time() - began))


def _own_time() -> float:
    """Return the CPU seconds of this thread: the time that it waits takes nothing from the measurement."""
    return time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID)


def together(parts: Sequence[Tuple[float, List[GpuUse]]]) -> List[GpuUse]:
    """Merge the activity of the same GPUs in several stretches of time, given with their seconds."""
    weights = [seconds for seconds, _ in parts]
    merged = []
    for uses in zip(*(uses for _, uses in parts)):
        found: Dict[str, Any] = {}
        for name, values in zip(GpuUse._fields, zip(*uses)):
            known = [(value, weight) for value, weight in zip(values, weights) if value is not None]
            numbers = [value for value, _ in known]
            if not known:
                continue
            if name in MEANS:
                found[name] = sum(value * weight for value, weight in known) / sum(weight for _, weight in known)
            elif name in MOST or name in LEAST:
                found[name] = max(numbers) if name in MOST else min(numbers)
            elif name == "throttled_by":
                found[name] = sorted(set().union(*numbers))
            elif name == "joules":
                found[name] = sum(numbers) if len(numbers) == len(values) else None
        merged.append(uses[0]._replace(**found))
    return merged
