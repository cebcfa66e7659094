"""The state of a GPU at this moment, by NVML: NVIDIA's driver brings the library, and no package is needed."""

import ctypes
from typing import Any, List, NamedTuple, Optional

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
        self._library, self._handle, self.uuid = library, handle, uuid

    def sample(self) -> Sample:
        """Return a sample of this moment."""
        used, memory = self._asked("nvmlDeviceGetUtilizationRates", Utilization()), self._memory()
        milliwatts = self._number("nvmlDeviceGetPowerUsage")
        sm, of_memory = (self._number("nvmlDeviceGetClockInfo", kind) for kind in (SM, MEMORY))  # MHz
        return Sample(
            busy_share=None if used is None else used.gpu / 100.0,
            memory_bytes=memory,
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

    def _memory(self) -> Optional[int]:
        found = self._asked("nvmlDeviceGetMemoryInfo", Memory())
        return None if found is None else int(found.used)

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
