"""Where a rank's messages go: rank-N.jsonl in the job's output folder."""

import os
import time

from suite.worker.messages import Message, Progress, encode


class Outbox:
    """One rank's messages, each flushed as it is sent: the controller takes them as signs of life."""

    PROGRESS_EVERY = 0.25  # seconds

    def __init__(self, folder: str, rank: int) -> None:
        self._stream = open(os.path.join(folder, "rank-%d.jsonl" % rank), "w")  # noqa: SIM115 - open for the worker's life
        self._next_progress = 0.0

    def send(self, message: Message) -> None:
        """Write one message; ValueError names a field of the wrong type."""
        self._stream.write(encode(message) + "\n")
        self._stream.flush()

    def progress(self, name: str, phase: str, step: int, of: int) -> None:
        """Send Progress, unless the last one is too recent; cheap enough for every step."""
        now = time.perf_counter()
        if now >= self._next_progress:
            self._next_progress = now + self.PROGRESS_EVERY
            self.send(Progress(name, phase, step, of))

    def close(self) -> None:
        """Nothing more will be sent."""
        self._stream.close()
