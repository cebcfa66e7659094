"""What each GPU of a case did while it was measured, as a table in words."""

from collections.abc import Iterable

from reports.text import UNKNOWN, memory, number, share
from suite.analysis.machine import Gpu
from suite.worker.messages import GpuUse

SHORT = len("GPU-12345678")  # of a UUID: enough to tell a host's from each other
HEADINGS = [
    "host",
    "GPU",
    "UUID",
    "time with a kernel",
    "memory at most",
    "power, W (most)",
    "SM clock, MHz (least)",
    "memory clock, MHz (least)",
    "°C at most",
    "throttled by",
]


def gpu_table(gpus: Iterable[Gpu]) -> list[list[str]]:
    """Its headings and rows, in words; empty without GPUs."""
    rows = [[gpu.host, gpu.model or "unknown", gpu.use.uuid[:SHORT], *_cells(gpu.use)] for gpu in gpus]
    return [HEADINGS, *rows] if rows else []


def _cells(use: GpuUse) -> list[str]:
    return [
        share(use.busy_share),
        memory(use.memory_bytes),
        _two(use.watts, use.most_watts),
        _two(_megahertz(use.sm_clock_hz), _megahertz(use.least_sm_clock_hz)),
        _two(_megahertz(use.memory_clock_hz), _megahertz(use.least_memory_clock_hz)),
        UNKNOWN if use.celsius is None else str(use.celsius),
        UNKNOWN if use.throttled_by is None else ", ".join(use.throttled_by) or "nothing",
    ]


def _two(mean: float | None, extreme: float | None) -> str:
    return f"{number(mean)} ({number(extreme)})" if mean is not None else UNKNOWN


def _megahertz(clock: float | None) -> float | None:
    return None if clock is None else clock / 1e6
