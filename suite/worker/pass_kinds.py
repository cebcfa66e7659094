"""The passes of a measurement, one declaration each.

Plans, the worker, checks of records, documentation and pages read the declarations; a new pass needs one more of them
and a method of `stagebench.suite.worker.passes.Passes`. Those of inference are loads: `stagebench.suite.worker.queries`
runs them all.

Python 3.6, standard library only.
"""

from typing import Callable, NamedTuple, Optional

NATIVE = "native"
STAGED = "staged"
RESIDENT = "resident"
COMPUTE_ONLY = "compute_only"
COMM_ONLY = "comm_only"
IO_ONLY = "io_only"
KERNELS = "kernels"
TRAIN = "train"
OFFLINE = "offline"
SINGLE_STREAM = "single_stream"
MULTI_STREAM = "multi_stream"
SERVER = "server"


def always(devices: int, reads: bool) -> Optional[str]:
    """Return None: the pass measures something in every case."""
    return None


def if_devices_exchange(devices: int, reads: bool) -> Optional[str]:
    """Return why a case on one device has no exchange to measure."""
    return "one device exchanges nothing" if devices == 1 else None


def if_data_are_read(devices: int, reads: bool) -> Optional[str]:
    """Return why a case with synthetic data has no input to measure."""
    return None if reads else "synthetic data are not read"


class PassKind(NamedTuple):
    """A pass: the method `_NAME` of stagebench.suite.worker.passes.Passes runs it, unless it is a task of its own."""

    name: str
    runs: str  # in words, for documentation
    yields: str  # in words, for documentation and pages
    skipped: Callable[[int, bool], Optional[str]] = always  # (all devices, whether data are read): why not to run
    only_stage: str = ""  # the one stage that it measures; a strategy that cannot time that stage has no such pass
    against: str = ""  # the pass with which it is timed in turns
    exchanges: bool = False  # whether its steps count as traffic that the hosts must have sent
    has_loss: bool = False  # whether a record's reader gets the loss of its last step
    own_pace: bool = False  # whether ranks may run different numbers of steps
    usual: bool = True  # whether a plan that names no passes has it
    infers: bool = False  # whether it asks a predictor (stagebench.suite.worker.predictor); else a trainer
    query: int = 0  # samples of one query, if it infers; 0: the case's batch


# In the order in which they run: after compute_only the ranks no longer hold the same parameters.
PASS_KINDS = (
    PassKind(
        NATIVE,
        "the framework's own fastest training step, with nothing else inside",
        "the speed",
        exchanges=True,
        has_loss=True,
    ),
    PassKind(
        STAGED,
        "the stages of an iteration one by one, each waited for, with a barrier before communication; in turns with "
        "native steps",
        "the seconds of each stage",
        against=NATIVE,
        exchanges=True,
        has_loss=True,
    ),
    PassKind(
        RESIDENT,
        "native steps on batches that stay on the device, in turns with native steps",
        "what reading and copying add",
        skipped=if_data_are_read,
        against=NATIVE,
    ),
    PassKind(
        COMPUTE_ONLY,
        "native steps without communication, in turns with native steps; both on batches that stay on the device",
        "what communication adds",
        skipped=if_devices_exchange,
        against=NATIVE,
        has_loss=True,
    ),
    PassKind(
        COMM_ONLY,
        "only the network's own gradients and what else the strategy sends in a step are exchanged, in the same turns",
        "what communication costs alone",
        skipped=if_devices_exchange,
        only_stage="communication",
        against=NATIVE,
        exchanges=True,
    ),
    PassKind(
        IO_ONLY,
        "the input pipeline alone",
        "how fast data can come",
        skipped=if_data_are_read,
        only_stage="io",
        own_pace=True,
    ),
    PassKind(
        KERNELS,
        "staged iterations under the framework's own profiler; only if a plan names it",
        "the kernels behind each stage",
        usual=False,
    ),
    PassKind(
        TRAIN,
        "whole epochs, with a test after each; never together with the other passes",
        "accuracy over time",
        usual=False,
    ),
    PassKind(
        OFFLINE,
        "queries of a batch each, the next one begun before the answers are waited for",
        "the speed of inference",
        infers=True,
    ),
    PassKind(
        SINGLE_STREAM,
        "queries of one sample, each begun when the one before is answered",
        "the latency of a single sample",
        infers=True,
        query=1,
    ),
    PassKind(
        MULTI_STREAM,
        "queries of eight samples, each begun when the one before is answered",
        "the latency of eight samples at once",
        infers=True,
        query=8,
    ),
    PassKind(
        SERVER,
        "queries of one sample that arrive at random (Poisson), at several rates; only if a plan names it",
        "latency by rate",
        usual=False,
        infers=True,
        query=1,
    ),
)
BY_NAME = {kind.name: kind for kind in PASS_KINDS}
NAMES = tuple(BY_NAME)
USUAL = tuple(kind.name for kind in PASS_KINDS if kind.usual and not kind.infers)
LOADS = tuple(kind.name for kind in PASS_KINDS if kind.infers)
USUAL_LOADS = tuple(kind.name for kind in PASS_KINDS if kind.infers and kind.usual)
SPEEDS = (NATIVE, OFFLINE)  # those that give a case's speed
LOSSES = tuple(kind.name for kind in PASS_KINDS if kind.has_loss)
EXCHANGING = tuple(kind.name for kind in PASS_KINDS if kind.exchanges)
