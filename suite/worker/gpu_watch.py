"""The activity of a rank's GPUs while its steps are measured: samples, reduced to means, extremes and unions."""

import threading
import time
from typing import Any, Dict, List, Optional, Tuple

from suite.worker import nvml
from suite.worker.messages import GpuUse

EVERY_S = 0.1
REST = 200  # times the CPU time of a sample, until the next one: sampling must not disturb the measurement
QUANTITIES = [name for name in nvml.Sample._fields if name != "reasons"]
MEANS = ("busy_share", "watts", "sm_clock_hz", "memory_clock_hz")
MOST = ("memory_bytes", "most_watts", "celsius")
LEAST = ("least_sm_clock_hz", "least_memory_clock_hz")


class Series:
    """A quantity of one GPU: its mean, its least and its greatest value."""

    def __init__(self) -> None:
        """Begin without a value."""
        self._count, self._sum = 0, 0.0
        self.least: Any = None
        self.most: Any = None

    def add(self, value: Any) -> None:
        """Add a value; None is ignored."""
        if value is None:
            return
        self._count, self._sum = self._count + 1, self._sum + value
        self.least = value if self.least is None else min(self.least, value)
        self.most = value if self.most is None else max(self.most, value)

    @property
    def mean(self) -> Optional[float]:
        """The mean of the values; None if there are none."""
        return self._sum / self._count if self._count else None


class Seen:
    """The activity of one GPU, from the begin to the end of a measurement."""

    def __init__(self, card: nvml.Card) -> None:
        """Begin now."""
        self._card, self._series = card, {name: Series() for name in QUANTITIES}
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
        after, series = self._card.joules(), self._series
        return GpuUse(
            uuid=self._card.uuid,
            busy_share=series["busy_share"].mean,
            memory_bytes=series["memory_bytes"].most,
            watts=series["watts"].mean,
            most_watts=series["watts"].most,
            sm_clock_hz=series["sm_clock_hz"].mean,
            least_sm_clock_hz=series["sm_clock_hz"].least,
            memory_clock_hz=series["memory_clock_hz"].mean,
            least_memory_clock_hz=series["memory_clock_hz"].least,
            celsius=series["celsius"].most,
            throttled_by=None if self._reasons is None else nvml.in_words(self._reasons),
            joules=None if after is None or self._before is None else after - self._before,
        )


class GpuWatch:
    """A watch on some GPUs between `begin` and `end`, repeatable; without any, or without NVML, it does nothing."""

    def __init__(self, uuids: List[str]) -> None:
        """Open NVML if there are GPUs to watch, which may take a while."""
        self._cards = nvml.cards(uuids)
        self._seen: List[Seen] = []

    def begin(self) -> None:
        """Begin a new measurement."""
        self._seen, self._over = [Seen(card) for card in self._cards], threading.Event()
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
