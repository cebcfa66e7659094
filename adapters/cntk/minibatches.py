"""Batches of CNTK's MinibatchSource: what its readers of records and of images have in common.

Oldest Python: 3.6.
"""

from typing import Any, Callable

from suite.worker.contract import Batch, Setup


class TooFew(ValueError):
    """Some rank would get nothing."""


class MinibatchReader:
    """Every sweep in another order that the seed decides, whole chunks dealt out to the ranks.

    All ranks' samples of a sweep are the set's, each once. Shares differ by a chunk at most; a rank with fewer
    begins the next sweep earlier. What is returned is CNTK's own memory, and good until the next batch is asked for:
    its thread then reads ahead into it.
    """

    def __init__(self, path: str, setup: Setup, device: Any, opened: Callable[[], Any]) -> None:
        """Begin to read `path` with what `opened` makes; OSError names a file that cannot be."""
        self._path, self._setup, self._device = path, setup, device
        self._source: Any = self._told(opened)
        self._streams: Any = (self._source.streams.images, self._source.streams.labels)

    def next_batch(self) -> Batch:
        """Two cntk.io.MinibatchData."""
        return self._told(self._next)  # type: ignore[no-any-return]

    def close(self) -> None:
        """CNTK ends its thread with the source, which its streams hold too."""
        self._source = self._streams = None

    def _next(self) -> Batch:
        setup = self._setup
        found = self._source.next_minibatch(
            setup.batch * setup.world,
            device=self._device,
            num_data_partitions=setup.world,
            partition_index=setup.rank,
        )
        if not found:
            raise ValueError("no samples came instead of %d" % setup.batch)
        images, labels = (found[stream] for stream in self._streams)  # once: a look-up costs a twentieth of a batch
        if images.num_samples != setup.batch:
            raise ValueError("a batch of %d samples came instead of %d" % (images.num_samples, setup.batch))
        return Batch(images, labels)

    def _told(self, act: Callable[[], Any]) -> Any:
        """What `act` returns; its error names the file."""
        try:
            return act()
        except (MemoryError, TooFew):
            raise
        except Exception as error:  # CNTK's are of many kinds, with the stack of its C++ below the first line
            told = str(error).strip().split("\n")[0]
            raise OSError("cannot read the records %s: %s; pack them again" % (self._path, told))


def enough(path: str, chunks: int, world: int) -> None:
    """TooFew where there is not a chunk for every rank."""
    if chunks < world:
        raise TooFew(
            "%s has %d chunks, which is too few for %d ranks; read it with format = 'files'" % (path, chunks, world)
        )
