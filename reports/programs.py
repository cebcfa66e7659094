"""What other benchmark programs print, a reader each: text in, results out; a text of another program gives none.

A case holds what the text says. What it does not say is "unknown", and several machines that it does not name are one.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from pydantic import ValidationError

from suite.comm.cases import CommCase
from suite.contracts.case import Case, Input, Placement, Sampling
from suite.errors import RequestError
from suite.files import disk
from suite.foreign.folder import UNKNOWN, Exchange, ForeignRun, Origin, Speed

MNIST = 60_000  # training images
TYPES = {"float": "float32", "half": "float16", "double": "float64", "bfloat16": "bfloat16"}  # nccl-tests' names
# Its programs' names. Others (reduce, sendrecv, ...) are no operation that stagebench measures.
OPERATIONS = {
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "alltoall": "all-to-all",
    "broadcast": "broadcast",
}
# A line of its heading, a batch size, or its last line.
TF_CNN = (
    r"\b(Model|Dataset|Devices|Optimizer|Variables):\s+(\S.*)"
    r"|\b([\d.]+) (global|per device)|\btotal images/sec: ([\d.]+)"
)
# Bytes, numbers, type, perhaps reduction and root, microseconds, and both bandwidths.
NCCL_ROW = r"^\s*(\d+)\s+(\d+)\s+([a-z]\w*)\s+(?:[a-z]+\s+)?(?:-?\d+\s+)?([\d.]+)\s+[\d.]+\s+[\d.]+\s+\S+\s+[\d.]"

# What a page says of a program's results, beside what it printed.
ARTICLE = "data-parallel article"
NOTES = {
    ARTICLE: "The article's text gives its small and its large network 402,442 and 2,636,554 parameters. Its PyTorch "
    "code trains 402,442 and 4,104,202, its TensorFlow code 347,146 and 2,007,050: its two frameworks never trained "
    "the same network.",
}

LARGEST = 1 << 26  # bytes of an output; more was printed by something else
LONGEST = 4096  # characters of a line that can be a result's

Result = Speed | Exchange


@dataclass(frozen=True)
class Printed:
    """A file of a program's output."""

    path: Path
    text: str
    framework: str | None = None  # as the person says, where the program does not

    @property
    def name(self) -> str:
        return self.path.name

    def matches(self, pattern: str) -> Iterator[tuple[int, re.Match[str]]]:
        """The lines, from 1, in which a pattern is found."""
        for number, line in enumerate(self.text.splitlines(), 1):
            if len(line) <= LONGEST and (found := re.search(pattern, line)):
                yield number, found

    def first(self, pattern: str) -> str | None:
        """What the first group has matched."""
        return next((found[1] for _, found in self.matches(pattern)), None)

    def refused(self, why: str) -> RequestError:
        """The error of this file, to be raised."""
        return RequestError(f"{self.path}: {why}")


def read(path: Path, framework: str | None) -> tuple[Result, ...]:
    """The results in a file; RequestError where no reader finds any."""
    remedy = "name what a benchmark printed"
    with disk(f"cannot read {path}", remedy, RequestError):
        if path.exists() and not path.is_file():  # reading from a pipe would never end
            raise RequestError(f"{path} is no file; {remedy}")
        if path.stat().st_size > LARGEST:
            raise RequestError(
                f"{path} has {path.stat().st_size} bytes, more than {LARGEST}; {remedy}, without the rest"
            )
        printed = Printed(path, path.read_text(errors="replace"), framework)
    for program, reader in READERS.items():
        try:
            found = tuple(reader(printed))
        except (ValueError, ArithmeticError, RecursionError) as error:
            why = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
            raise printed.refused(f"damaged output of {program} ({why}); import it as it was printed") from error
        if found:
            return found
    raise printed.refused(f"no result was found; these outputs are understood: {', '.join(READERS)}")


def article(printed: Printed) -> Iterator[Result]:
    """The data-parallel article's lines: https://github.com/r-o-s-h-a-n/data_parallel_benchmark.

    The speed is the second epoch's: the first one pays what is paid once. Its files are called FRAMEWORK_results.txt.
    """
    named = re.match(r"([a-z]+)_results\b", printed.name)
    framework = printed.framework or (named and named[1])
    for line, found in printed.matches(r"^\s*(\{.*\"n_dataset_repeat\".*\})\s*$"):
        if not framework:
            raise printed.refused(
                "neither its lines nor its name say which framework ran; add --framework, such as pytorch"
            )
        try:
            values = json.loads(found[1])
            repeat, batch, devices = (int(values[name]) for name in ("n_dataset_repeat", "batch_size", "n_gpus"))
            epochs = tuple(float(values[f"{name} epoch time"]) for name in ("first", "second"))
            size, rate = str(values["model_size"]), MNIST * repeat / epochs[1]
        except (ValueError, KeyError, TypeError, ArithmeticError, RecursionError) as error:
            raise printed.refused(f"line {line} is no result of the article ({error!r}); correct it") from None
        case = _case(
            framework,
            "data-parallel",
            f"mnist_{size}",
            Placement(device="cuda", devices=devices),
            batch,
            data="mnist",
            optimiser="adam",
            input=Input(repeat=repeat),
        )
        yield Speed(case=case, samples_per_second=rate, epoch_s=epochs, origin=_origin(ARTICLE, printed, line))


def tf_cnn_benchmarks(printed: Printed) -> Iterator[Result]:
    """tf_cnn_benchmarks.py: a heading for every process, then one total of all of them, printed by each."""
    for heading, rates, line in _totals(printed):
        if not {"Model", "global", "per device"} <= heading.keys():
            raise printed.refused(f"line {line}: no model or batch size stands before this total; import the whole log")
        batch, gpus = float(heading["per device"]), "gpu" in heading.get("Devices", "").lower()
        devices = max(1, round(float(heading["global"]) / batch))
        case = _case(
            printed.framework or "tensorflow",
            heading.get("Variables", UNKNOWN),
            heading["Model"],
            Placement(device="cuda" if gpus else "cpu", ranks_per_node=devices),
            round(batch),
            data=heading.get("Dataset", UNKNOWN),
            optimiser=heading.get("Optimizer", UNKNOWN),
        )
        yield Speed(case=case, samples_per_second=median(rates), origin=_origin("tf_cnn_benchmarks", printed, line))


def _totals(printed: Printed) -> Iterator[tuple[dict[str, str], list[float], int]]:
    """Of each run what its heading says, the totals of its processes, and the last one's line."""
    heading: dict[str, str] = {}
    rates: list[float] = []
    at = 0
    for number, found in printed.matches(TF_CNN):
        name, value, size, of, total = found.groups()
        if name == "Model" and rates:
            yield heading, rates, at
            heading, rates = {}, []
        if total:
            rates.append(float(total))
            at = number
        else:
            heading.setdefault(name or of, (value or size).rstrip())
    if rates:
        yield heading, rates, at


def horovod_synthetic(printed: Printed) -> Iterator[Result]:
    """Horovod's pytorch_synthetic_benchmark.py and its like for other frameworks: one run to a file."""
    for line, found in printed.matches(r"\bTotal img/sec on (\d+) (GPU|CPU)\(s\): ([\d.]+)"):
        model, batch = printed.first(r"\bModel: (\S+)"), printed.first(r"\bBatch size: (\d+)")
        if not model or not batch:
            raise printed.refused("no line `Model:` or `Batch size:` was found; import the whole output")
        devices = int(found[1])
        parts = tuple(float(part[1]) * devices for _, part in printed.matches(r"\bIter #\d+: ([\d.]+) img/sec per"))
        place = Placement(device="cuda" if found[2] == "GPU" else "cpu", ranks_per_node=devices)
        case = _case(printed.framework or "horovod", "horovod", model.lower(), place, int(batch), data="synthetic")
        origin = _origin("Horovod synthetic benchmark", printed, line)
        yield Speed(case=case, samples_per_second=float(found[3]), parts=parts, origin=origin)
        return


def nccl_tests(printed: Printed) -> Iterator[Result]:
    """all_reduce_perf and its like: the out-of-place times."""
    ranks = {int(found[1]): found[2] for _, found in printed.matches(r"\bRank\s+(\d+)\b.*?\bon\s+(\S+)\s+device\b")}
    found = list(printed.matches(NCCL_ROW))
    if not found:
        return
    if not ranks:
        raise printed.refused("no line `Rank ... device ...` says how many ranks there were; import the whole output")
    operation = OPERATIONS.get(printed.first(r"\b(\w+?)_perf") or Path(printed.name).stem.partition("_perf")[0])
    if operation is None:
        known = ", ".join(f"{name}_perf" for name in OPERATIONS)
        raise printed.refused(f"nothing says which of {known} printed it; begin the file with its command")
    hosts = tuple(dict.fromkeys(ranks.values()))
    place = Placement(nodes=len(hosts), ranks_per_node=-(-len(ranks) // len(hosts)), device="cuda")
    iterations = int(printed.first(r"\biters: (\d+) (?:agg|valid)") or 1)
    counts: dict[str, list[int]] = {}
    for _, row in found:
        counts.setdefault(row[3], []).append(int(row[2]))
    for line, row in found:
        dtype = TYPES.get(row[3], row[3])
        case = CommCase("nccl", operation, place, 0.0, tuple(counts[row[3]]), dtype=dtype)
        seconds, origin = float(row[4]) * 1e-6, _origin("nccl-tests", printed, line)
        yield Exchange(case=case, hosts=hosts, bytes=int(row[1]), seconds=seconds, samples=iterations, origin=origin)


def notes_of(folder: ForeignRun) -> list[str]:
    """What a page says of the programs whose results a folder holds."""
    programs = dict.fromkeys(one.origin.program for one in folder.speeds)
    return [NOTES[program] for program in programs if program in NOTES]


READERS: dict[str, Callable[[Printed], Iterator[Result]]] = {
    "the data-parallel article's JSON lines": article,
    "tf_cnn_benchmarks": tf_cnn_benchmarks,
    "Horovod's synthetic benchmarks": horovod_synthetic,
    "nccl-tests": nccl_tests,
}


def _case(adapter: str, strategy: str, workload: str, place: Placement, batch: int, **more: Any) -> Case:
    known = {"precision": UNKNOWN, "optimiser": UNKNOWN, "tuning": UNKNOWN, **more}
    return Case(adapter, strategy, workload, place, batch, sampling=Sampling(processes=1), passes=("native",), **known)


def _origin(program: str, printed: Printed, line: int) -> Origin:
    return Origin(program=program, file=printed.name, line=line)
