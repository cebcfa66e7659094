"""How one rank's case reads its data set: the view, the state of the page cache, what was skipped."""

import os
from typing import Any, Dict

from suite.worker.job import Input
from suite.worker.page_cache import page_cache
from suite.worker.sources import Source
from suite.worker.view import InMemory, View

NAMED = 5  # unreadable samples that a note names


class Reading:
    """A source opened as the case's `input` says."""

    def __init__(self, source: Source, input: Input, seed: int, folder: str, rank: int) -> None:
        """`folder` is the job's output."""
        self._cache, self._source = input.page_cache, source
        log = os.path.join(folder, "skipped-%d.txt" % rank)
        if os.path.exists(log):
            os.remove(log)  # an earlier attempt's
        if input.mode == "memory":
            source = InMemory(View(source, input._replace(repeat=1), seed, log))
        self.view = View(source, input, seed, log)

    def prepare(self) -> None:
        """Bring the page cache into the state that the case asks for; before every pass."""
        page_cache(self._source.paths(), self._cache)

    def notes(self) -> Dict[str, Any]:
        """What is read, and what was skipped so far."""
        skipped = self.view.skipped()
        if not skipped:
            return {"data": self.view.name}
        names = ["%s (%d times)" % (name, count) for name, count in sorted(skipped.items())]
        return {
            "data": self.view.name,
            "skipped": {"samples": len(names), "reads": sum(skipped.values()), "which": names[:NAMED]},
        }
