"""A thread that brings messages forward while the training thread computes.

MPI moves a message only while one of its functions runs, and a convolution may take longer
than the operating system's buffers keep a wire busy. The operators release Python's lock,
so a thread that looks every fraction of a millisecond costs little and leaves no gap.
Between two looks it sleeps: it shares its core with the one that computes.

Oldest Python: 3.6.
"""

import threading
import time
from typing import Any, Callable

HURRY = 0.1  # of the usual pause, while the training thread has nothing to do but wait


class Driver:
    """Calls `advance` while it returns True, from the time somebody wakes it."""

    def __init__(self, advance: Callable[[], bool], poll_s: float, failed: Callable[[BaseException], Any]) -> None:
        """Start asleep; `failed` gets what `advance` raised, and nothing is brought forward any more."""
        self._advance, self._poll_s, self._failed = advance, poll_s, failed
        self.awaited = False  # somebody waits
        self._work = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="progress")
        self._thread.daemon = True
        self._thread.start()

    def wake(self) -> None:
        """There is something to bring forward."""
        self._work.set()

    def close(self) -> None:
        """Return when the thread has ended; what is on its way stays where it is."""
        self._ended = True
        self._work.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while True:
                self._work.wait()
                self._work.clear()  # before looking: what is posted from now on wakes again
                while not self._ended and self._advance():
                    time.sleep(self._poll_s * HURRY if self.awaited else self._poll_s)
                if self._ended:
                    return
        except BaseException as error:
            self._failed(error)
