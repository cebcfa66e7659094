"""The base of the worker side's three contracts: the life, the clock and the machine of a rank.

`stagebench.suite.worker.trainer` trains, `stagebench.suite.worker.predictor` infers,
`stagebench.suite.worker.communicator` exchanges.
"""

import time
from abc import ABC, abstractmethod
from typing import Any, Dict, Optional

from stagebench.suite.worker import peaks
from stagebench.suite.worker.contract import Joined, Setup

Notes = Dict[str, Any]  # JSON's values by name


class Member(ABC):
    """A rank of a group, or the only one."""

    group: Any = None  # a Group, if `start` stores one here: `maximum` and `close` then call it

    def __init__(self, setup: Setup) -> None:
        """Keep the setup; touch neither device nor network yet."""
        self.setup = setup

    @abstractmethod
    def start(self) -> Joined:
        """Set threads and device, join the group. Called once, first."""

    def synchronize(self) -> None:
        """Return when the device has done all its work; the default is for CPUs, if every call returns with it done."""
        if self.setup.device != "cpu":
            raise NotImplementedError(f"{type(self).__name__} does not say how to wait for {self.setup.device!r}")

    def close(self) -> None:
        """Leave the group; called once, last, if all went well.

        Override it to release first whatever needs the other ranks.
        """
        if self.group is not None:
            self.group.close()

    def maximum(self, value: float) -> float:
        """Return the largest value over all ranks; also the barrier. The default: the group's, or for a single rank."""
        if self.group is not None:
            return float(self.group.maximum(value))
        if self.setup.world > 1:
            raise NotImplementedError(f"{type(self).__name__} does not ask the other ranks")
        return value

    # --- time -----------------------------------------------------------------

    def mark(self) -> Any:
        """Return a point in time on the device's own time line; on a CPU the monotonic clock."""
        return time.perf_counter()

    def has_device_marks(self) -> bool:
        """Return whether a mark is an event that the device reaches in its own time: stages need no waiting."""
        return False

    def elapsed(self, begin: Any, end: Any) -> float:
        """Return the seconds between two marks; called only after `synchronize`."""
        return end - begin

    period = 1  # steps from one exchange to the next: parts and blocks that are timed hold whole ones
    ahead = 0  # steps that may be in flight when `step` returns: parts of the native pass then begin and end so

    def waits_for_ranks(self) -> bool:
        """Return whether steps wait for other ranks, so that all make as many of them in the native pass.

        Called after a step. Ranks that wait for none are timed by the clock.
        """
        return True

    def dropped_steps(self) -> int:
        """Return the steps of this rank so far whose batch did not enter the model: others had gone on without it."""
        return 0

    # --- the machine ------------------------------------------------------------

    def peak_device_bytes(self) -> Optional[int]:
        """Return the most bytes that the framework has held on this rank's devices at a time; None if unknown."""
        return None

    def yardstick(self) -> Optional[peaks.Yardstick]:
        """Return the yardstick of the peaks of this rank's devices, in the setup's precision; None: not measured.

        Called after the passes, all but `kernels`. The default: NumPy on CPUs, in float32 and float64. Override it for
        other devices and precisions.
        """
        return peaks.on_cores(self.setup)

    def notes(self) -> Notes:
        """Return notes for a record's reader: merge plan, memory format, what computes the layers, ..."""
        return {}
