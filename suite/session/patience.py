"""A disk that refuses for a while is waited for: one that is full for a minute does not end a weekend's run."""

from collections.abc import Callable
from time import monotonic, sleep
from typing import TypeVar

from suite.errors import StoreError, may_pass

AGAIN = 5.0  # seconds between two tries
# Seconds. Somebody else's job ends, a log is rotated, a file server starts again within minutes. What lasts longer
# wants a person, who should find a run that has ended and says why, on a machine that others can use.
PATIENCE = 600.0

T = TypeVar("T")


class Patience:
    """The wait for a disk to take one thing."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """`say` is called once, when it turns out that there is something to wait for."""
        self._say = say
        self._until: float | None = None

    def wait(self, error: StoreError) -> None:
        """Return when it is time to try again; raises the error if waiting does not help, or has not in PATIENCE."""
        if not may_pass(error):
            raise error
        first, now = self._until is None, monotonic()
        if self._until is None:
            self._until = now + PATIENCE
        if now >= self._until:
            raise error
        if first:
            self._say(
                f"{error.args[0]}; it is tried again for {PATIENCE / 60:g} minutes: free some space, or bring the disk "
                "back, and the run goes on"
            )
        sleep(AGAIN)


def patiently(do: Callable[[], T], say: Callable[[str], None]) -> T:
    """What `do` returns, once the disk lets it; else its StoreError, as `Patience.wait` has it."""
    patience = Patience(say)
    while True:
        try:
            return do()
        except StoreError as error:
            patience.wait(error)
