"""Waiting for a disk that refuses for a while, so that a minute of a full disk does not end a weekend's run."""

from collections.abc import Callable
from time import monotonic, sleep
from typing import TypeVar

from stagebench.suite.errors import StoreError, may_pass

AGAIN = 5.0  # seconds between two tries
# Seconds. Another job's end, a log's rotation or a file server's restart frees a disk within minutes. A longer problem
# needs a person, who should find a run that has ended with the reason, and a machine that is free for other users.
PATIENCE = 600.0

T = TypeVar("T")


class Patience:
    """The wait for a disk until one operation succeeds."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """Take a function that is called once, with a sentence, before the first wait."""
        self._say = say
        self._until: float | None = None

    def wait(self, error: StoreError) -> None:
        """Return when it is time to try again; raise the error if waiting cannot help, or PATIENCE is over."""
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
    """Call `do` until the disk accepts it, and return its value; a StoreError is raised as by `Patience.wait`."""
    patience = Patience(say)
    while True:
        try:
            return do()
        except StoreError as error:
            patience.wait(error)
