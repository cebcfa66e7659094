"""The task `comm` on ranks that are threads, and its parts."""

import numpy as np
import pytest
import toy
import wires

from stagebench.suite.worker import samples
from stagebench.suite.worker.comm import PARTED, Measured
from stagebench.suite.worker.contract import Unsupported
from stagebench.suite.worker.job import Communicate
from stagebench.suite.worker.messages import Done, ExchangeTimes, OverlapTimes, SkippedSizes, decode, encode
from stagebench.suite.worker.patterns import EXACT, WrongResult, check, expected, given
from stagebench.suite.worker.samples import LEAST, MOST, Sampler
from tests.support import trainers
from tests.support.errors import raising
from tests.support.sent import Nobody

SECONDS = 0.002
OPERATIONS = ("all-reduce", "broadcast", "point-to-point", *PARTED)


class Box(Nobody):
    """... whose messages come through the wire."""

    def send(self, message):
        assert decode(encode(message)) == message
        super().send(message)


def ranks(world, work, kind=wires.Wire):
    """What `work(communicator, outbox)` leaves in each rank's outbox; what it raises is returned instead."""
    shared = wires.Threads(world)

    def live(rank):
        box, communicator = Box(), kind(trainers.setup(rank=rank, world=world), shared)
        communicator.start()
        try:
            work(communicator, box)
        except Exception as error:
            shared.abort()
            return error
        return box.sent

    return toy.together(world, live)


def measuring(method, *arguments, operation="all-reduce", seconds=SECONDS):
    """What a rank does: it measures an operation in one way."""
    return lambda communicator, box: getattr(Measured(communicator, operation, seconds, box), method)(*arguments)


def test_sizes_beyond_the_budget_are_named_alike_by_all_ranks():
    for rows in ranks(2, measuring("sizes", [1, 4, 16, 64], [], 0.001, seconds=0.01)):
        assert rows[0].kind == "single"
        assert rows[1:] == [SkippedSizes([16, 64, 256])]
    assert [row.bytes for row in ranks(2, measuring("sizes", [1, 4], [], 0.0))[0]] == [4, 16]


class Charged(wires.Beginning):
    def run(self):
        self.taken = self.given
        self.wire.now += 1e-3 + self.given.nbytes * 1e-8


class Clocked(wires.Wire):
    """One rank on a clock of its own: 1 ms and 100 MB/s, with the sizes' memory but without their time."""

    made_of, now = Charged, 0.0

    def clock(self):
        self.now += 1e-6
        return self.now

    def maximum(self, value):
        return value

    def compute(self):
        self.now += 5e-5


@pytest.mark.parametrize("budget", [0.3, 5.0, 10.0])
def test_no_size_is_lost_for_what_computation_hides(budget):
    counts, beside = [4**power for power in range(12)], [1 << 14, 1 << 18, 1 << 22]

    def rows(overlap):
        box = Box()
        Measured(Clocked(trainers.setup(), None), "all-reduce", 0.25, box).sizes(counts, overlap, budget)
        return box.sent

    plain, with_overlap = rows([]), rows(beside)
    hidden = [row.bytes for row in with_overlap if isinstance(row, OverlapTimes)]
    assert [row.bytes for row in with_overlap if not isinstance(row, OverlapTimes)] == [row.bytes for row in plain]
    reached = [row.bytes for row in plain if isinstance(row, ExchangeTimes)]
    assert hidden == [4 * count for count in beside if 4 * count in reached]
    assert budget < 10.0 or reached == [4 * count for count in counts]


def test_what_computes_for_the_first_time_is_not_timed():
    """In the first products cuBLAS sets itself up and chooses its kernels: thousands of times as long as one takes."""

    class Cold(Clocked):
        products = 0

        def compute(self):
            self.products += 1
            self.now += 5e-5 if self.products > 3 else 0.5

    slices = []
    for kind in (Clocked, Cold):
        box = Box()
        Measured(kind(trainers.setup(), None), "all-reduce", 0.25, box).overlap(1 << 18)
        slices.append(box.sent[0].slices)
    assert slices[0] == slices[1] > 1


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("count", [1, 16, 3000])
def test_every_operation_is_verified_and_sampled_alike_on_all_ranks(operation, count):
    rows = ranks(3, measuring("single", count, operation=operation))
    divisible = -(-count // 3) * 3 if operation in PARTED else count
    for ((row,),) in zip(rows):
        assert (row.kind, row.operation, row.bytes, row.messages) == ("single", operation, 4 * divisible, 1)
        assert len(row.sample_s) == len(rows[0][0].sample_s) >= LEAST
        assert len(row.late_s) == (0 if operation == "point-to-point" else len(row.sample_s))


@pytest.mark.parametrize(("kind", "rank"), [(wires.FlippedWire, 1), (wires.StaleWire, None)])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_wrong_result_is_refused(kind, rank, operation):
    found = ranks(2, measuring("single", 8, operation=operation), kind)
    wrong = [error for error in found if isinstance(error, WrongResult)]
    assert wrong, found
    if rank is not None:
        assert "rank 1 of 2 has" in str(wrong[0])
        assert "1 wrong numbers in all" in str(wrong[0])


OVERLAP, TENSORS = measuring("overlap", 8), measuring("tensors", [5, 5], seconds=0.0)


@pytest.mark.parametrize("kind", [wires.IdleWire, wires.TiringWire])
@pytest.mark.parametrize("work", [OVERLAP, TENSORS])
def test_what_is_begun_must_be_done(kind, work):
    assert any(isinstance(error, WrongResult) for error in ranks(2, work, kind))


def test_results_of_others_or_of_another_size_are_refused():
    assert any(isinstance(error, WrongResult) for error in ranks(2, TENSORS, wires.MixedWire))
    with raising(WrongResult, 0, 3, 4):
        check(np.zeros(3, np.float32), "all-reduce", 4, 0, 2, 1)


def test_what_is_expected_is_what_the_operations_mean():
    every = [given("all-reduce", 2500, rank, 4, 7) for rank in range(4)]
    assert (expected("all-reduce", 2500, 2, 4, 7) == np.sum(every, axis=0)).all()
    parts = [given("all-gather", 2400, rank, 4, 7) for rank in range(4)]
    assert (expected("all-gather", 2400, 1, 4, 7) == np.concatenate(parts)).all()
    whole = np.sum([given("reduce-scatter", 2400, rank, 4, 7) for rank in range(4)], axis=0)
    assert (expected("reduce-scatter", 2400, 3, 4, 7) == whole[1800:]).all()
    sent = [given("all-to-all", 2400, rank, 4, 7) for rank in range(4)]
    assert (expected("all-to-all", 2400, 3, 4, 7) == np.concatenate([each[1800:] for each in sent])).all()
    assert expected("point-to-point", 8, 1, 3, 7) is None
    assert (expected("broadcast", 9, 2, 3, 7) == given("broadcast", 9, 0, 3, 7)).all()
    sent = {tuple(given("all-reduce", 4, rank, 4, turn)) for rank in range(4) for turn in (1, 2)}
    assert len(sent) == 8


def test_sums_of_small_types_are_exact_for_usual_groups_and_rounded_beyond():
    for dtype, ranks in (("float16", 66), ("bfloat16", 36)):
        right = expected("all-reduce", 9, 0, ranks, 7, dtype)
        assert right.max() <= EXACT[dtype]
        with pytest.raises(WrongResult):
            check(right + 1, "all-reduce", 9, 0, ranks, 7, dtype)
    right = expected("all-reduce", 9, 0, 64, 7, "bfloat16")
    check(right * (1 + 2.0**-8), "all-reduce", 9, 0, 64, 7, "bfloat16")
    for wrong in (right * 1.5, right * float("nan")):
        with pytest.raises(WrongResult):
            check(wrong, "all-reduce", 9, 0, 64, 7, "bfloat16")


def test_gradient_tensors_each_in_a_row_together_and_flat():
    for rows in ranks(2, measuring("tensors", [5, 70, 5], seconds=0.0), wires.BeginningWire):
        assert [(row.kind, row.bytes, row.messages) for row in rows] == [
            ("single", 20, 1),
            ("single", 280, 1),
            ("row", 320, 3),
            ("together", 320, 3),
            ("single", 320, 1),
        ]


def test_without_a_non_blocking_form_nothing_is_sent_of_it():
    (rows, _) = ranks(2, measuring("tensors", [5], seconds=0.0))
    assert [row.kind for row in rows] == ["single", "row", "single"]
    assert ranks(2, OVERLAP) == [[], []]
    with pytest.raises(Unsupported, match="non-blocking"):
        wires.Text(None, "all-reduce").begin()


def test_overlap_has_samples_of_each_and_of_both():
    found = ranks(2, OVERLAP, wires.BeginningWire)
    for (row,) in found:
        assert (row.operation, row.bytes) == ("all-reduce", 32)
        assert row.slices == found[0][0].slices >= 1
        lengths = {len(times) for times in (row.exchange_s, row.compute_s, row.both_s, row.progressed_s)}
        assert len(lengths) == 1
        assert min(lengths) >= LEAST


def test_samples_have_a_bound_and_an_end(monkeypatch):
    done = []

    def work(communicator, box):
        runs = []
        found = Sampler(communicator, 10.0, box.progress).times("x", lambda: runs.append(1), most=9)
        done.append((len(runs), len(found.seconds)))

    ranks(2, work)
    assert done == [(9, 5)] * 2
    monkeypatch.setattr(samples, "MOST", 20)
    found = []
    ranks(2, lambda c, box: found.append(Sampler(c, 1e9, box.progress).times("x", lambda: None)))
    assert [len(each.seconds) for each in found] == [20, 20]
    assert MOST > 20


def test_a_worker_process_exchanges_alone(make_job, work, monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "0")
    code, found = work(make_job(Communicate("wires:Wire", "all-gather", [1, 4], [], 0.0, 0.0)))
    assert (code, found[-1]) == (0, Done())
    assert [message.bytes for message in found if isinstance(message, ExchangeTimes)] == [4, 16]
