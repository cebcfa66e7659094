"""A device that runs behind its host, on a clock of its own: what is asked of it returns at once.

Oldest Python: 3.6.
"""

from stagebench.suite.worker.contract import Batch
from tests.support import trainers


class Clock:
    """Stands for the module `time` in what is measured; nothing sleeps."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class BehindTrainer:
    """Steps take device seconds, batches reader seconds, and the host waits for either only where it must.

    `step_s`, `exchange_s` (what is left of the exchange beside computing), `copy_s` of each batch, `read_s` of a reader
    that keeps up to `ahead` batches ready; with `at_once` each reader makes a batch of its own, so that so many are
    there at the same time, after `at_once` times as long. The first step takes `first_s` longer. An exchange by itself
    takes `alone_s`. The device gets slower: what takes a second at first takes `drift` longer with each second that has
    passed. `beside` has, of every step, how many batches were still being read when it began. `calls` has every call's
    name.
    """

    ahead = 0
    period = 1

    def __init__(
        self,
        clock,
        step_s=1.0,
        exchange_s=0.0,
        copy_s=0.0,
        read_s=0.0,
        ahead=4,
        at_once=1,
        first_s=0.0,
        alone_s=0.0,
        drift=0.0,
        **setup,
    ):
        self.setup = trainers.setup(**setup)
        self._clock, self._device_free, self.calls = clock, 0.0, []
        self._step_s, self._exchange_s, self._copy_s = step_s, exchange_s, copy_s
        self._read_s, self._ready = read_s * at_once, [0.0] * ahead  # when each batch that is read ahead will be there
        self._at_once, self._first_s, self._alone_s, self._drift, self.beside = at_once, first_s, alone_s, drift, []

    def waits_for_ranks(self):
        return True

    def dropped_steps(self):
        return 0

    def _device(self, seconds):
        begin = max(self._device_free, self._clock.now)
        self._device_free = begin + seconds * (1.0 + self._drift * begin)

    def next_batch(self):
        self.calls.append("next_batch")
        # A reader begins a batch when it has delivered its last one, and a place for it is free.
        self._ready.append(max(self._ready[-self._at_once], self._clock.now) + self._read_s)
        self._clock.now = max(self._clock.now, self._ready.pop(0))
        return Batch([[0.0]] * self.setup.batch, [0] * self.setup.batch)

    def as_numpy(self, batch):
        return batch

    def to_device(self, batch):
        self.calls.append("to_device")
        self._device(self._copy_s)
        return batch

    def step(self, batch):
        self.calls.append("step")
        self.beside.append(sum(ready > self._clock.now for ready in self._ready))
        self._device(self._step_s + self._exchange_s + self._first_s)
        self._clock.now += self._first_s  # the host compiles
        self._first_s = 0.0

    def skip_batch(self):
        self.next_batch()

    def step_alone(self, batch):
        self.calls.append("step_alone")
        self._device(self._step_s)

    def forward(self, batch):
        self.calls.append("forward")

    def backward(self):
        self.calls.append("backward")
        self._device(self._step_s)

    def communicate(self):
        self.calls.append("communicate")
        self._device(self._alone_s)

    def update(self):
        self.calls.append("update")

    def synchronize(self):
        self._clock.now = max(self._clock.now, self._device_free)

    def mark(self):
        return self._clock.now

    def elapsed(self, begin, end):
        return end - begin

    def maximum(self, value):
        return value

    def gradient_bytes(self):
        return None

    def loss(self):
        return 0.5
