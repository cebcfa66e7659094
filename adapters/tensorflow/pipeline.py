"""What all of this adapter's tf.data pipelines share: threads, order, batches, errors.

Positions come from Python, some thousand at a time; all else runs in TensorFlow's own threads,
`setup.readers` of them that are the pipeline's alone. Those are fewer than the samples under
way, so that a large image holds up nobody though the order stays.

Oldest Python: 3.6.
"""

import atexit
import itertools
from typing import Any, Callable, Iterator, NamedTuple, Optional

import numpy as np
import tensorflow as tf

from suite.worker.contract import Setup
from suite.worker.threaded import batches_of_indices
from suite.worker.view import View

POSITIONS = 4096  # that Python is asked for at a time
UNDER_WAY = 4  # samples begun and not yet delivered, a reader

Explain = Callable[[int, Exception], OSError]  # (batches delivered before it, the error) -> the file's


class Tensors(NamedTuple):
    """A host batch of TensorFlow's: images float32 (samples, height, width, channels), labels int64."""

    images: Any
    labels: Any


class TensorReader:
    """The batches of a pipeline that ends in batched (images, labels)."""

    def __init__(self, pipeline: Any, setup: Setup, words: str, explain: Explain) -> None:
        """Begin to read at once; `words` say what reads."""
        if setup.readers:
            pipeline = pipeline.prefetch(setup.prefetch * setup.readers)
        self.words, self._explain, self._taken = words, explain, 0
        with tf.device("CPU:0"):
            self._batches: Any = iter(pipeline.with_options(options(setup)))
        # While the interpreter ends, a thread that asks Python for positions never returns; the iterator waits for it.
        atexit.register(self.close)

    def next_batch(self) -> Tensors:
        """The next batch; OSError names the file that cannot be read."""
        try:
            images, labels = next(self._batches)
        except tf.errors.OpError as error:
            raise self._explain(self._taken, error) from None
        self._taken += 1
        return Tensors(images, labels)

    def close(self) -> None:
        """Stop the threads: they go with the iterator."""
        self._batches = iter(())
        atexit.unregister(self.close)


def options(setup: Setup) -> Any:
    """All that tf.data would else decide by itself."""
    chosen = tf.data.Options()
    chosen.deterministic = True
    chosen.autotune.enabled = False
    chosen.threading.private_threadpool_size = max(1, setup.readers)
    chosen.threading.max_intra_op_parallelism = 1
    chosen.experimental_optimization.map_parallelization = False  # or no readers become several
    chosen.experimental_optimization.inject_prefetch = False
    return chosen


def under_way(setup: Setup) -> Optional[int]:
    """Samples that are decoded at the same time, waiting for one another; None: one after the other, where asked."""
    return UNDER_WAY * setup.readers if setup.readers else None


def positions(view: View, setup: Setup) -> Any:
    """A data set of `batches_of_indices`, int64 (batch,); ValueError when there are too few samples."""
    batches = batches_of_indices(view, setup)
    first = next(batches)
    several = max(1, POSITIONS // setup.batch)

    def some() -> Iterator[np.ndarray]:
        rest = itertools.chain([first], batches)
        while True:
            yield np.array(list(itertools.islice(rest, several)), np.int64)

    spec = tf.TensorSpec([None, setup.batch], tf.int64)
    return tf.data.Dataset.from_generator(some, output_signature=spec).prefetch(1).unbatch()


def mapped(function: Callable[..., Any], samples: Any, at_once: Optional[int]) -> Any:
    """A data set's `map`, the function as it stands: AutoGraph has nothing to rewrite."""
    return samples.map(tf.autograph.experimental.do_not_convert(function), num_parallel_calls=at_once)
