"""Like with like: which rows may be compared, and which marks keep a row from it."""

from collections.abc import Iterable
from operator import attrgetter

from stagebench.suite.contracts.case import Case

FOREIGN, SHARED_GPUS, FAILED_LATER = "foreign", "shared GPUs", "failed later"
# Marks that keep a row out of every cross-framework chart and comparison, and what they mean.
DISQUALIFYING = {
    FOREIGN: "imported from the output of another program; nothing proves what was trained",
    "no proof": "nothing shows that it trains the same network",
    "proof of another machine": "its proof ran on other processors, or other GPUs, than its measurement",
    "proof under other variables": "environment variables that change arithmetic or libraries differed from "
    "its measurement's",
    "proof failed": "it does not train the same network",
    "non-finite loss": "the training diverged",
    "trend": "nearly every process was still getting faster, or slower, while it was measured",
    "other method": "its figures are defined differently from those of the rest of the run",
    "other machine": "one of its processes ran on another machine than the rest of the run",
    "other driver or governor": "one of its processes ran with another GPU driver, GPU limit or clock governor than "
    "the rest of the run",
    "other server version": "its processes met different versions of the model server",
    SHARED_GPUS: "several ranks drove the same GPU, as the plan allowed: their speed means nothing",
    "missing rank": "not all ranks reported, or the engine connected a different number of them",
}
# Marks that a reader should know, without more.
NOTED = {
    FAILED_LATER: "a pass after the native one ended badly; the speed was measured before, the reason is given",
    "quick": "shorter sampling than the full measurement",
    "incomplete": "not every process was measured",
    "another time": "most of its processes were measured at another time than the run's other rows; only a larger "
    "difference from them shows",
    "samples skipped": "unreadable samples were replaced by their neighbours; the notes name them",
    "more threads than cores": "it trains with more threads on a host than physical cores that they may use",
    "CPU quota": "a control group limits the time of its cores; short measurements, such as the machine's peak, may be "
    "faster than long ones",
    "disturbed": "during at least one process, other programs or guests of the machine used part of its cores, or the "
    "cores were slower than at other times of the run",
    "GPU throttled": "heat, a lack of power or its hardware held the clock of a GPU down during at least one process",
    "subnormal": "parameters or gradients became so small (subnormal numbers) that processors compute slowly",
    "one process": "the interval shows the noise of its steps only",
    "unsteady breakdown": "the warm-up of a pass never settled; the speed, which is another pass's, is not affected",
    "disturbed breakdown": "other programs, or other guests, used part of its cores in a pass that does not give the "
    "speed",
    "large residual": "the stages explain the speed badly: conditions changed between passes, or fusing gains much",
}

Key = tuple[object, ...]
# What rows that may be compared share: network, input, arithmetic, devices and care.
SHARED = attrgetter(
    "workload",
    "graph_digest",
    "data",
    "precision",
    "optimiser",
    "clip_norm",
    "placement.device",
    "placement.nodes",
    "placement.devices_per_node",
    "placement.threads",
    "placement.binding",
    "placement.share_devices",
    "straggler",
    "readers",
    "batch",
    "tuning",
    "infers",
)


def meaning(mark: str) -> str:
    """Return the meaning of a mark; KeyError for an unknown one."""
    return (DISQUALIFYING | NOTED)[mark]


def comparable(marks: Iterable[str]) -> bool:
    """Return True if no mark keeps a row from being compared with other frameworks' rows."""
    return DISQUALIFYING.keys().isdisjoint(marks)


def group(case: Case, synchronous: bool = True) -> Key:
    """Return a key that rows that may be compared share: network, input, arithmetic, algorithm, devices and care.

    Not the format of the records: each framework has its own. Training that is not equivalent to one device with the
    joined batch (asynchronous, local, quantised) is compared with its own strategy and knobs only.
    """
    read = [str(value) for key, value in case.input._asdict().items() if key != "format"]
    alone = () if synchronous else (case.strategy, str(sorted(case.knobs.items())))
    return (*SHARED(case), str(case.serving), *read, *alone)
