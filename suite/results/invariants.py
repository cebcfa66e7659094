"""The invariants of every record, whatever was measured: a record that breaks one is invalid and gives no figure."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter

from stagebench.suite.contracts.case import Collective
from stagebench.suite.results.rank_report import Rank, Times, is_end
from stagebench.suite.results.records import Record
from stagebench.suite.text import shown
from stagebench.suite.worker.case_parts import ITEMSIZES
from stagebench.suite.worker.comm import divisible
from stagebench.suite.worker.messages import (
    PARTS_BEHIND,
    PARTS_INSIDE,
    ExchangeTimes,
    Noise,
    OverlapTimes,
    Pass,
    SkippedSizes,
    Training,
    Try,
)
from stagebench.suite.worker.pass_kinds import BY_NAME, COMM_ONLY, COMPUTE_ONLY, TRAIN

CLOCKS, CLOCKS_S = 1.05, 1e-3  # a device's clock and its host's may differ by this factor plus these seconds
# The time of a pass in addition to its steps: the wait for its device. If steps are timed on the host, a GPU may still
# have to compute all of them: each takes up to WAITS times the warm-up's median step, and all WAIT_S seconds more.
WAITS, WAIT_S = 5, 1.0
# A CPU has done its steps by the last mark, though some updates of the last one may be open: a wait of OPEN_STEPS steps
# in each part that is timed behind its own barrier, of PART_S seconds or more (stagebench.suite.worker.loop).
PART_S, OPEN_STEPS = 0.5, 2


# The samples of a message, taken one after the other: of an exchange alone, and of one that is overlapped.
SAMPLES, OVERLAPPED = ("sample_s",), ("exchange_s", "compute_s", "both_s", "progressed_s")


def broken(record: Record) -> str | None:
    """Return the first invariant that a record breaks, in words; None if all hold."""
    of_record = (check(record) for check in (_of_exchanges, _of_counts, _of_steps))
    of_ranks = (check(record, rank) for check in (_of_system, _of_rank) for rank in record.ranks)
    return next(chain(*of_record, *of_ranks), None)


def _of_counts(record: Record) -> Iterator[str]:
    place = record.case.placement
    found = [rank.rank for rank in record.ranks]
    if found != sorted(set(found)) or (found and not 0 <= found[0] <= found[-1] < place.ranks):
        yield f"it has the ranks {found}, and its case has {place.ranks}"
    if record.outcome == "ok" and len(found) != place.ranks:
        yield f"its outcome is ok, and {len(found)} of {place.ranks} ranks reported"
    if record.repeat < 0 or record.seconds < 0:
        yield f"repeat = {record.repeat}, seconds = {record.seconds:g}: neither can be below 0"


def _of_steps(record: Record) -> Iterator[str]:
    """Check that ranks trained for equal numbers of epochs and steps; asynchronous ones may differ in steps."""
    ranks = record.ranks
    trained = [rank.training for rank in ranks if rank.training]
    paced = record.declared is not None and not record.declared.synchronous
    counted = [(len(it.epochs), *(() if paced else (len(it.losses), len(it.loss_s)))) for it in trained]
    if len(set(counted)) > 1:
        yield "its ranks trained for different numbers of epochs or steps"
    for name in dict.fromkeys(name for rank in ranks for name in rank.passes):
        if name in BY_NAME and BY_NAME[name].own_pace:
            continue
        measured = [rank.passes[name] for rank in ranks if name in rank.passes]
        taken = {len(each.step_s) for each in measured}
        if len(taken) > 1 and not all(each.own_pace for each in measured):
            yield f"its ranks took {' and '.join(map(str, sorted(taken)))} steps in the pass {name!r}"


def _of_passes(record: Record, rank: Rank) -> Iterator[str]:
    """Check that a rank has the native pass if its group was to measure the speed, and when it was ready for it."""
    times = [rank.joined.load_s if rank.joined else 0.0, rank.built.seconds if rank.built else 0.0]
    started = [seconds for seconds in times if seconds is not None]
    if min(started, default=0.0) < 0 or sum(started) > CLOCKS * record.seconds + CLOCKS_S:
        ready = f"it was loaded and built in {' and '.join(f'{seconds:g} s' for seconds in started)}"
        yield f"rank {rank.rank}: {ready}, and the whole process took {record.seconds:g} s"
    expected = record.outcome == "ok" and record.case.speed_pass in record.case.passes_of(record.repeat)
    if expected and not rank.training and record.case.speed_pass not in rank.passes:
        yield f"rank {rank.rank}: its outcome is ok, and it has no pass {record.case.speed_pass!r}"


def _of_rank(record: Record, rank: Rank) -> Iterator[str]:
    per_step = record.case.batch * record.case.placement.devices
    if rank.training:
        found = _of_training(rank.training, record.seconds, per_step)
        yield from (f"rank {rank.rank}: {problem}" for problem in found)
        if record.outcome == "ok" and record.case.passes == (TRAIN,) and not rank.training.epochs:
            yield f"rank {rank.rank}: its outcome is ok, and it trained for no epoch"
    if rank.peaks and min(rank.peaks.flop_per_s, rank.peaks.bytes_per_s) <= 0:
        yield f"rank {rank.rank}: its peaks are {rank.peaks.flop_per_s:g} FLOP/s and {rank.peaks.bytes_per_s:g} bytes/s"
    kernels = [*rank.kernels.stages.values(), *(row.seconds for row in rank.kernels.rows)] if rank.kernels else []
    if min(kernels, default=0) < 0:
        yield f"rank {rank.rank}: a kernel took less than no time"
    spent = sum(_spent(each, rank.passes) for each in rank.passes.values())
    if spent > CLOCKS * record.seconds + CLOCKS_S:
        yield f"rank {rank.rank}: its passes take {spent:g} s together, and the whole process {record.seconds:g} s"
    yield from _of_passes(record, rank)
    address = record.case.serving.address
    yield from (f"rank {rank.rank}: {problem}" for each in rank.tries for problem in _of_try(each, bool(address)))
    for name, measured in rank.passes.items():
        found = chain(_of_pass(name, measured, per_step), _of_wall(record, measured), _of_times(measured))
        yield from (f"rank {rank.rank}, pass {name!r}: {problem}" for problem in found)
    counted, native = rank.noise and rank.noise.native, rank.passes.get(record.case.speed_pass)
    if counted and native and native.wall_s > CLOCKS * counted.seconds + CLOCKS_S:
        took, seen = native.wall_s, counted.seconds
        yield f"rank {rank.rank}: its native steps take {took:g} s, of which the system saw {seen:g} s"


def _of_training(learnt: Training, whole_s: float, per_step: int) -> Iterator[str]:
    """Check a training; `per_step` is the number of samples that a rank consumes in a step."""
    steps, times, epochs = learnt.loss_steps, learnt.loss_s, learnt.epochs
    if not len(steps) == len(learnt.losses) == len(times or steps):
        yield "its losses, their steps and their times are not as many"
    if list(steps) != sorted(steps) or list(times) != sorted(times) or min(times, default=0.0) < 0:
        yield "its losses' steps or times go backwards"
    spent = [each for epoch in epochs for each in (epoch.train_s, epoch.test_s)]
    if min(spent, default=0.0) < 0 or sum(spent) > CLOCKS * whole_s + CLOCKS_S:
        yield f"its epochs take from {min(spent):g} s, {sum(spent):g} s together, and the whole process {whole_s:g} s"
    if not 0 <= (learnt.open_s or 0.0) <= CLOCKS * whole_s + CLOCKS_S:
        yield f"its input was opened in {learnt.open_s:g} s, and the whole process took {whole_s:g} s"
    if any(epoch.samples < 0 or epoch.steps < 0 for epoch in epochs):  # none: a slow worker may have had none
        yield "an epoch has less than no samples, or than no steps"
    if any(epoch.samples > 0 and epoch.train_s <= 0 for epoch in epochs):
        yield "an epoch of some samples took no time"
    wrong = [epoch for epoch in epochs if epoch.samples != per_step * epoch.steps]
    yield from (f"{epoch.samples} samples in an epoch of {epoch.steps} steps of {per_step}" for epoch in wrong)


def _spent(measured: Pass, passes: Mapping[str, Pass]) -> float:
    """Return the seconds of a pass, its warm-up, steps set aside, and the native steps with which it alternates."""
    shared = measured.name == COMM_ONLY and COMPUTE_ONLY in passes  # the same native steps, counted there
    pairs = () if shared else measured.pairs_s or ()
    turns = sum(native for native, _ in pairs) * len(measured.step_s) / max(1, len(pairs))
    return measured.wall_s + sum(measured.warmup_s) + sum(measured.set_aside_s or ()) + turns


def _of_exchanges(record: Record) -> Iterator[str]:
    """Check the exchanges of a collective: all ranks must take the same samples of the case's messages."""
    collective, ranks = record.case.collective, record.ranks
    if collective is None:
        yield from (f"rank {rank.rank}: it has exchanges, and its case trains" for rank in ranks if rank.exchanges)
        return
    yield from _of_rows(ranks, collective)
    for rank in ranks:
        if rank.passes or rank.training:
            yield f"rank {rank.rank}: it has passes, and its case is a collective"
        if record.outcome == "ok":
            problems = _of_messages(rank.exchanges, collective, record.case.placement.ranks)
            yield from (f"rank {rank.rank}: {problem}" for problem in problems)
        sampled = sum(sum(getattr(row, name, ())) for row in rank.exchanges for name in (*SAMPLES, *OVERLAPPED))
        if sampled > CLOCKS * record.seconds + 1.0:
            yield f"its samples took {sampled:.3g} s, and all of it {record.seconds:.3g} s"


def _of_rows(ranks: Sequence[Rank], collective: Collective) -> Iterator[str]:
    for number, rows in enumerate(zip(*(rank.exchanges for rank in ranks), strict=False)):
        yield from (f"row {number} {problem}" for row in rows for problem in _of_row(row, collective))
        if len({str((type(row), getattr(row, "kind", ""), row.bytes)) for row in rows}) > 1:
            yield f"row {number} is not of as many bytes on every rank"
        if len({tuple(len(getattr(row, name, ())) for name in (*SAMPLES, *OVERLAPPED)) for row in rows}) > 1:
            yield f"row {number} is not of the same samples on every rank"


def _of_row(row: Times, collective: Collective) -> Iterator[str]:
    """Check a rank's samples of a message; a problem follows the row's number."""
    if isinstance(row, SkippedSizes):
        return
    if isinstance(row, ExchangeTimes) and row.kind not in ("single", "row", "together"):
        yield f"is of the unknown kind {shown(row.kind)}"
    if row.operation != collective.operation:
        yield f"is of {shown(row.operation)}, its case of {collective.operation}"
    timed = [getattr(row, name) for name in (OVERLAPPED if isinstance(row, OverlapTimes) else SAMPLES)]
    if any(not times or min(times) <= 0 for times in timed):
        yield "has no samples, or some that took no time"
    if len({*map(len, [*timed, *filter(None, [row.late_s])])}) > 1:
        yield "has more of some times than of others"


def _of_messages(rows: Sequence[Times], collective: Collective, world: int) -> Iterator[str]:
    """Check that a rank's messages are those of its case, each once, in order."""
    sizes = [ITEMSIZES[collective.dtype] * divisible(collective.operation, count, world) for count in collective.counts]
    single = [row.bytes for row in rows if isinstance(row, ExchangeTimes) and row.kind == "single"]
    skipped = [size for row in rows if isinstance(row, SkippedSizes) for size in row.bytes]
    several = [row for row in rows if isinstance(row, ExchangeTimes) and row.kind != "single"]
    if collective.tensors:
        wanted = [*sorted(set(sizes)), sum(sizes)]
    else:
        wanted = sizes[: len(single)] if skipped else sizes
        if skipped and skipped != collective.sizes[len(single) :]:
            yield f"messages of {shown(skipped)} bytes were skipped, and other ones are missing"
    if single != wanted:
        yield f"messages of {shown(single)} bytes were measured, and its case has {shown(wanted)}"
    if any((row.bytes, row.messages) != (sum(sizes), len(sizes)) for row in several):
        yield f"all tensors are {len(sizes)} messages of {sum(sizes)} bytes, and other ones were measured"
    if any(row.bytes not in sizes for row in rows if isinstance(row, OverlapTimes)):
        yield "a message that its case has not was measured beside computation"


def _of_system(_: Record, rank: Rank) -> Iterator[str]:
    """Check a rank's connections, and the noise that it saw."""
    for end in chain.from_iterable(rank.connections):
        if not is_end(end):
            yield f"rank {rank.rank}: its connection has the end {end[:50]!r}, which is no address and port"
    noise = rank.noise or Noise([], [])
    if min((*noise.reference_before_s, *noise.reference_after_s), default=1.0) <= 0:
        yield f"rank {rank.rank}: its reference computation took no time"
    for name, use in (("native", noise.native), ("train", noise.train), ("comm", noise.comm)):
        if use and (use.seconds <= 0 or use.cores < 1):
            yield f"rank {rank.rank}: the system counted for {use.seconds:g} s on {use.cores} cores during {name}"


def _of_pass(name: str, measured: Pass, per_step: int) -> Iterator[str]:
    """Check a pass's name, counts and signs; `per_step` is the number of samples that a rank consumes in a step."""
    steps, wall = measured.step_s, measured.wall_s
    if measured.name != name:
        yield f"it calls itself {measured.name!r}"
    if not steps or min(steps) < 0 or wall <= 0:
        yield f"{len(steps)} steps in {wall:g} s; there is one at least, and none takes less than no time"
    per_step = (BY_NAME[name].query if name in BY_NAME else 0) or per_step
    if measured.samples != per_step * (len(steps) - measured.dropped_steps):
        yield f"{measured.samples} samples in {len(steps)} steps of {per_step} ({measured.dropped_steps} dropped)"
    if min((*measured.warmup_s, *(measured.set_aside_s or ())), default=0.0) < 0:
        yield "a step of its warm-up, or one that was set aside, took less than no time"
    for begin, end in measured.spans_s or ():
        if end < begin:
            yield f"a block of it began at {begin:g} s and ended at {end:g} s"
    if any(min(pair) <= 0 for pair in measured.pairs_s or ()):
        yield "a block of steps took no time"


def _of_try(tried: Try, elsewhere: bool) -> Iterator[str]:
    """Check a try's counts, signs and parts; of a model server elsewhere no batch is seen."""
    answered, behind = len(tried.latency_s), bool(tried.lag_s)
    ended = answered + tried.malformed + tried.refused + tried.timed_out + tried.failed
    # A query that the generator gave up may have been answered even so; of one that was refused no batch had any.
    lost = sum(tried.batches) < answered if behind else sum(tried.batches) != answered
    lost = bool(tried.batches) if elsewhere else lost
    least = 0 if behind else 1  # a server may refuse every query
    if not (least <= answered <= tried.scheduled and tried.rate > 0) or lost:
        yield f"a try has {answered} answers of {tried.scheduled} queries, in batches of {sum(tried.batches)} in all"
    if behind and ended != len(tried.lag_s):
        yield f"a try sent {len(tried.lag_s)} queries, and tells what became of {ended}"
    if tried.wall_s <= 0:
        yield f"a try took {tried.wall_s:g} s"
    if not (0 <= tried.wrong <= tried.compared <= answered):
        yield f"a try has {tried.wrong} wrong answers of {tried.compared} that were compared"
    parts = ("lag", "server") if elsewhere else PARTS_BEHIND if behind else PARTS_INSIDE
    stages, more = tried.stage_s, ["back"] * (behind and not elsewhere)
    if set(stages) - set(more) != set(parts) or min((*tried.latency_s, stages.get("forward", 0.0))) < 0:
        yield f"a try has other parts than {', '.join(sorted(parts))}, or one that took less than no time"
    whole = sum(tried.latency_s) / max(1, answered)
    if abs(sum(stages.values()) - whole) > (CLOCKS - 1) * whole + CLOCKS_S:
        yield f"a try's parts are {sum(stages.values()):g} s together, and its latencies {whole:g} s in the mean"
    if len(tried.batch_s) != len(tried.batches) or min(tried.batch_s, default=0.0) < 0:
        yield f"a try has {len(tried.batches)} batches, and the seconds of {len(tried.batch_s)}"


def _of_wall(record: Record, measured: Pass) -> Iterator[str]:
    """Check that a pass is not much longer than its steps, and as long as the time from its begin to its end."""
    steps, wall, warm = measured.step_s, measured.wall_s, sorted(measured.warmup_s)
    usual = warm[len(warm) // 2] if warm else 0.0
    on_cpu = record.case.placement.device == "cpu"
    waits = OPEN_STEPS * _parts(measured, usual) if on_cpu else WAITS * len(steps)
    if wall > CLOCKS * sum(steps) + waits * usual + WAIT_S:
        yield f"it took {wall:g} s, and its {len(steps)} steps {sum(steps):g} s together"
    if measured.spans_s:
        span = sum(end - begin for begin, end in measured.spans_s)
        if abs(span - wall) > (CLOCKS - 1) * wall + CLOCKS_S:
            yield f"it took {wall:g} s, and {span:g} s from the begin to the end of its blocks"


def _parts(measured: Pass, usual: float) -> int:
    """Return the largest possible number of separately timed parts of a pass.

    A pass in alternation has one part per round; otherwise `usual`, the warm-up's median step, limits the number.
    """
    if measured.pairs_s:
        return len(measured.pairs_s)
    return max(1, len(measured.step_s) // math.ceil(PART_S / usual)) if usual > 0 else 1


def _of_times(measured: Pass) -> Iterator[str]:
    """Check that the components of a pass are not longer than the pass.

    Stages that are much shorter are no error: the analysis marks the row.
    """
    steps, waits, stages, wall = measured.step_s, measured.io_s, measured.stage_s or {}, measured.wall_s
    spent = {"steps": sum(steps), "waits for input": sum(waits or ()), "stages": sum(map(sum, stages.values()))}
    if max(spent.values()) > CLOCKS * wall + CLOCKS_S:
        what, total = max(spent.items(), key=itemgetter(1))
        yield f"its {what} take {total:g} s together, in {wall:g} s of wall time"
    for name, times in (("io_s", waits), *stages.items()):
        if times is None:
            continue
        if len(times) != len(steps):
            yield f"{len(times)} times of {name} for {len(steps)} steps"
        if times and min(times) < -CLOCKS_S:
            yield f"a time of {name} is {min(times):g} s"
