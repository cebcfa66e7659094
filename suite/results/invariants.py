"""What holds of every record, whatever was measured: one that breaks it is invalid, and no figure comes of it."""

from collections.abc import Iterator

from suite.results.rank_report import Pass, Rank
from suite.results.records import AnyRecord, Record

CLOCKS = 1.05  # a device's clock and its host's may differ by so much, and by a millisecond


def broken(record: AnyRecord) -> str | None:
    """The first invariant that a record breaks, in words; None when all hold."""
    return next(_broken(record), None)


def _broken(record: AnyRecord) -> Iterator[str]:
    place = record.case.placement
    found = [rank.rank for rank in record.ranks]
    if found != sorted(set(found)) or not set(found) <= set(range(place.ranks)):
        yield f"it has the ranks {found}, and its case has {place.ranks}"
    if record.outcome == "ok" and len(found) != place.ranks:
        yield f"its outcome is ok, and {len(found)} of {place.ranks} ranks reported"
    if record.repeat < 0 or record.seconds < 0:
        yield f"repeat = {record.repeat}, seconds = {record.seconds:g}: neither can be below 0"
    ranks = [rank for rank in record.ranks if isinstance(rank, Rank)]
    trained = [rank.training for rank in ranks if rank.training]
    paced = isinstance(record, Record) and record.declared is not None and not record.declared.synchronous
    counted = [(len(it.epochs), *(() if paced else (len(it.losses), len(it.loss_s)))) for it in trained]
    if len(set(counted)) > 1:  # workers that wait for nobody take as many steps as they can
        yield "its ranks trained for different numbers of epochs or steps"
    for rank in ranks:
        learnt = rank.training
        if learnt and not len(learnt.loss_steps) == len(learnt.losses) == len(learnt.loss_s or learnt.losses):
            yield f"rank {rank.rank}: its losses, their steps and their times are not as many"
        for name, measured in rank.passes.items():
            per_step = record.case.batch * place.devices
            yield from (f"rank {rank.rank}, pass {name!r}: {problem}" for problem in _of_pass(name, measured, per_step))


def _of_pass(name: str, measured: Pass, per_step: int) -> Iterator[str]:
    """`per_step`: samples that a rank consumes in a step."""
    steps, wall = measured.step_s, measured.wall_s
    if measured.name != name:
        yield f"it calls itself {measured.name!r}"
    if not steps or min(steps) < 0 or wall <= 0:
        yield f"{len(steps)} steps in {wall:g} s; there is one at least, and none takes less than no time"
        return
    if measured.samples != per_step * len(steps):
        yield f"{measured.samples} samples in {len(steps)} steps of {per_step}"
    if sum(steps) > CLOCKS * wall + 1e-3:
        yield f"its steps take {sum(steps):g} s together, in {wall:g} s of wall time"
    beside = {"io_s": measured.io_s, **(measured.stage_s or {})}
    for each, seconds in beside.items():
        if seconds is not None and len(seconds) != len(steps):
            yield f"{len(seconds)} times of {each} for {len(steps)} steps"
