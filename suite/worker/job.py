"""The job that a group of ranks is started with: one definition, one encoder, one decoder.

job.json holds `format`, `output`, `group`, and the task under its name, with the task's fields:

    {"format": 5, "output": "/run/attempts/...", "group": {...}, "measure": {...}}

A job is read by the worker half of the release that wrote it: no other format is understood.
"""

import json
from typing import Any, Dict, List, NamedTuple, Optional, Union

from stagebench.suite.worker.case_parts import Input, Sampling, Schedule, Serving, Training
from stagebench.suite.worker.contract import Setup
from stagebench.suite.worker.typed_json import from_json, in_words, to_json
from stagebench.suite.worker.variables import Variables
from stagebench.workloads.catalogue import PHOTOGRAPHS, Preprocessing
from stagebench.workloads.graph import Graph

FORMAT = 5


class Group(NamedTuple):
    """The ranks, and the setup of each."""

    trainer: str  # "module:name" inside the bundle
    setup: Setup  # of every rank; each puts its own rank, world and local rank in place of those of rank 0
    ranks_per_node: int
    binding: str  # "none", or "cores": each rank has cores of its own (stagebench.suite.worker.binding)
    memory_limit: int  # bytes that each process of a rank, and each server, may allocate; 0: no limit
    variables: Variables = Variables()  # the adapter's, in addition to those of stagebench.suite.worker.variables
    straggler: float = 0.0  # share of its cores' time that the last rank loses to a load (stagebench.suite.worker.load)


# --- parts of tasks ----------------------------------------------------------


class DataSet(NamedTuple):
    """A real data set; None in its place: synthetic data."""

    kind: str  # "arrays", "folder", "text" or "records"
    path: str
    preprocessing: Preprocessing = PHOTOGRAPHS
    digest: str = ""  # that a text must have (stagebench.suite.worker.text_files)


class Recipe(NamedTuple):
    """The values that decide the content of a packed set."""

    source: str  # the set's name
    kind: str  # "arrays" or "folder"
    listing: str  # a digest of the source's listing
    shape: List[int]  # of a sample; empty: whole images
    resize: int  # pixels of the shorter side; 0: as they were
    adapter: str


class ModelServer(NamedTuple):
    """A model server to start, or one elsewhere: `stagebench.suite.contracts.model_server`."""

    name: str
    version: str
    tokens: List[str]  # its command, with its environment's Python first; elsewhere that alone, if it has one
    bundle: str  # the folder of the code that it runs
    path: str  # to which queries are sent; elsewhere, below the case's address
    protocol: str = "raw"
    whole_ms: bool = False
    since_arrival: bool = False
    environ: Dict[str, str] = {}
    health: Optional[str] = None  # the path that is asked first, as `path`; None: none is


# --- tasks -------------------------------------------------------------------


class Measure(NamedTuple):
    """Run passes."""

    graph: Graph
    passes: List[str]
    sampling: Sampling
    input: Input
    data: Optional[DataSet] = None
    peaks: bool = False  # whether to measure the devices' peak rates, too
    serving: Serving = Serving()
    model_server: Optional[ModelServer] = None  # that takes the queries of the load `server`; None: no server
    trace: List[float] = []  # when they arrive, in seconds from 0; empty: as `serving` says


class Train(NamedTuple):
    """Train whole epochs, with a test after each."""

    graph: Graph
    training: Training
    schedule: Schedule
    input: Input
    data: Optional[DataSet] = None


class Prove(NamedTuple):
    """Compare the trainer's results with an oracle's."""

    graph: Graph
    oracle: str  # folder of the float64 results
    samples: int  # of one network
    layers: bool = False  # whether to look for the first wrong layer instead (stagebench.suite.worker.locate)


class MakeOracle(NamedTuple):
    """Write the float64 results that others are compared with."""

    graph: Graph
    folder: str
    samples: int  # of all networks together
    layers: bool = False  # whether they are those of the network cut after each layer


class Pack(NamedTuple):
    """Write a data set in a record format."""

    graph: Graph
    data: DataSet
    form: str  # the record format
    folder: str
    parts: int
    on_error: str  # "fail", or "skip": unreadable samples are skipped
    resize: int  # pixels of the shorter side; 0: images stay as they are
    recipe: Recipe


class Read(NamedTuple):
    """Read samples as a measurement would and leave them in OUTPUT/read.npz."""

    graph: Graph
    data: DataSet
    input: Input
    samples: int


class Behave(NamedTuple):
    """Check the behaviour that no oracle can show: `stagebench.suite.worker.behaviour`."""

    samples: int  # of one rank's network
    shares: int  # of them: devices of this rank that draw masks of their own
    looks: List[str] = ["staged", "native", "predict", "step_alone", "laziness", "threads"]  # the checks
    stages: List[str] = ["forward", "backward", "update"]  # those that the strategy times separately


class Look(NamedTuple):
    """Start and join, nothing more."""


class Communicate(NamedTuple):
    """Time one operation over its sizes, or over the gradient tensors of a network."""

    communicator: str  # "module:name" inside the bundle
    operation: str  # one of stagebench.suite.contracts.case.OPERATIONS
    counts: List[int]  # numbers of each message, one after the other; of tensors in backward order
    overlap: List[int]  # which of the counts are measured together with computation
    seconds: float  # of the samples of a message
    budget_s: float  # for all counts together, overlap not counted; those that would not fit are skipped. 0: no limit
    tensors: bool = False  # whether the messages are a network's gradient tensors
    dtype: str = "float32"  # of the numbers: one of stagebench.suite.worker.case_parts.ITEMSIZES


Task = Union[Measure, Train, Prove, Behave, MakeOracle, Pack, Read, Look, Communicate]
TASKS: Dict[str, Any] = {in_words(kind): kind for kind in Task.__args__}  # type: ignore[attr-defined]


class Job(NamedTuple):
    """The task of a group of ranks, and the group."""

    output: str  # the attempt's folder: rank-N.jsonl and rank-N.log go there
    group: Group
    task: Task


def encode(job: Job) -> str:
    """Return the content of a job file; ValueError names a field with a value that its definition does not allow."""
    name = in_words(type(job.task))
    content = {"format": FORMAT, "output": job.output, "group": to_json(job.group), name: to_json(job.task)}
    text = json.dumps(content, indent=1)
    decode(text, "job")
    return text


def decode(text: str, place: str) -> Job:
    """Return the job in a text; ValueError names `place` (its file) and the wrong field."""
    try:
        content = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{place} is no JSON: {error}")
    found = content.get("format") if isinstance(content, dict) else None
    if found != FORMAT:
        raise ValueError(f"{place} has format {found!r}; this worker reads format {FORMAT}")
    names = [name for name in TASKS if name in content]
    if len(names) != 1 or set(content) != {"format", "output", "group", names[0]}:
        raise ValueError(f"{place} wants output, group and one of {', '.join(TASKS)}, not {sorted(content)}")
    return Job(
        output=from_json(str, content["output"], f"{place}: output"),
        group=from_json(Group, content["group"], f"{place}: group"),
        task=from_json(TASKS[names[0]], content[names[0]], f"{place}: {names[0]}"),
    )


def read_job(path: str) -> Job:
    """Return the job in a file; ValueError names the file and the wrong field."""
    with open(path) as stream:
        return decode(stream.read(), path)
