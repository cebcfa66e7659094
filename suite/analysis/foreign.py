"""Imported speeds as rows: without processes, and with a mark that keeps them out of every comparison."""

import numpy as np

from suite.analysis.comparability import FOREIGN
from suite.analysis.rows import Row
from suite.analysis.stats import Rates
from suite.foreign.folder import ForeignRun, Speed


def imported_rows(folder: ForeignRun) -> list[Row]:
    """A row a case; what was printed several times of a case counts as that many processes."""
    by_case: dict[str, list[Speed]] = {}
    for speed in folder.speeds:
        by_case.setdefault(speed.case.id, []).append(speed)
    return [_row(id_, speeds) for id_, speeds in by_case.items()]


def _row(id_: str, speeds: list[Speed]) -> Row:
    # Of one process its parts are what steps are of ours: how much they differ is all that is known of its noise.
    parts = 1 / np.asarray(speeds[0].parts) if len(speeds) == 1 and speeds[0].parts else None
    return Row(
        id=id_,
        case=speeds[0].case,
        outcome=FOREIGN,
        reason="; ".join(map(_words, speeds)),
        processes=[],
        marks=[FOREIGN],
        proof_reason="imported",
        published=[tuple((each, _samples(speed)) for each in speed.epoch_s) for speed in speeds if speed.epoch_s],
        rates=Rates({(id_, at): speed.samples_per_second for at, speed in enumerate(speeds)}, parts),
    )


def _samples(speed: Speed) -> float:
    """Of an epoch: its speed is the last epoch's."""
    return speed.samples_per_second * speed.epoch_s[-1]


def _words(speed: Speed) -> str:
    epochs = ", ".join(f"{seconds:.3g}" for seconds in speed.epoch_s)
    return f"{speed.origin.words}{f'; seconds of the first epochs: {epochs}' if epochs else ''}"
