"""The output of other benchmark programs, a reader each: text in, results out; a text of another program gives none.

A case holds what the text says. What it does not say is "unknown", and several machines that it does not name are one.
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

from pydantic import ValidationError

from stagebench.reports.imports.mlperf import mlperf
from stagebench.reports.imports.nccl_tests import nccl_tests
from stagebench.reports.imports.printed import NUMBER, Printed, Result, Skipped, case_of, printed_in, sections
from stagebench.suite.contracts.case import Placement
from stagebench.suite.errors import RequestError
from stagebench.suite.results.foreign import SYSTEM, UNKNOWN, Speed, imported
from stagebench.suite.results.run_folder import RunFolder
from stagebench.suite.worker.case_parts import Input
from stagebench.suite.worker.pass_kinds import NATIVE, OFFLINE

MNIST = 60_000  # training images
ROW = {"row": "^(.*,.*)$"}
SEPARATOR = '"?[,;\t]"?'  # of a table that a spreadsheet has written anew
DECIMAL = re.compile('"\\d+,\\d+"')  # a decimal comma
PRECISIONS = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
# Of pytorch/README.md and NVIDIA's examples: the other columns of Lambda count tokens, or samples of sound.
OF_SAMPLES = ("ssd", "bert_base_squad", "bert_large_squad", "ncf", "resnet50")
OF_OTHERS = ("gnmt", "tacotron2", "transformerxlbase", "transformerxllarge", "waveglow")
TIMM = (
    r"benchmark-(?:train|infer)-(?P<precision>\w+)-(?P<layout>n\w+)-pt\d+-(?:cu\d+-)?(?P<system>.+?)"
    r"(?P<dynamo>-dynamo)?\."
)
LAMBDA = "Lambda's benchmarks"

# The words of a page about a program's results, next to what it printed.
ARTICLE = "data-parallel article"
TRAINING = "training"  # a mode of tf_cnn_benchmarks
NOTES = {
    ARTICLE: "The article's text gives its small and its large network 402,442 and 2,636,554 parameters. Its PyTorch "
    "code trains 402,442 and 4,104,202, its TensorFlow code 347,146 and 2,007,050: its two frameworks never trained "
    "the same network.",
}


class Read(NamedTuple):
    """The content of a file."""

    results: tuple[Result, ...]
    skipped: tuple[str, ...]  # why runs in it are no results, a line each


def read(path: Path, framework: str | None) -> Read:
    """Return the results in a file; RequestError where no reader finds any, and for what may be wrong."""
    printed = printed_in(path, framework)
    results: list[Result] = []
    skipped: list[str] = []
    for program, reader in READERS.items():
        try:
            for one in reader(printed):
                if isinstance(one, Skipped):
                    skipped.append(f"{path}: line {one.line}: {one.words}")
                else:
                    results.append(one)
        except (ValueError, ArithmeticError, RecursionError, LookupError, TypeError, AttributeError) as error:
            why = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
            raise printed.refused(f"damaged output of {program} ({why}); import it as it was printed") from error
    if not results and skipped:
        raise RequestError("; ".join(skipped))
    if not results:
        raise printed.refused(f"no result was found; these outputs are understood: {', '.join(READERS)}")
    return Read(tuple(results), tuple(skipped))


def article(printed: Printed) -> Iterator[Result | Skipped]:
    """The data-parallel article's lines: https://github.com/r-o-s-h-a-n/data_parallel_benchmark.

    The speed is the second epoch's: the first one pays what is paid once. Its files are called FRAMEWORK_results.txt.
    """
    named = re.match(r"([a-z]+)_results\b", printed.path.name)
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
        case = case_of(
            framework,
            "data-parallel",
            f"mnist_{size}",
            Placement(device="cuda", devices=devices),
            batch,
            data="mnist",
            optimiser="adam",
            input=Input(repeat=repeat),
        )
        yield Speed(case=case, samples_per_second=rate, epoch_s=epochs, origin=printed.origin(ARTICLE, line, line))


def tf_cnn_benchmarks(printed: Printed) -> Iterator[Result | Skipped]:
    """tf_cnn_benchmarks.py: a heading of every process, then one total of all of them, printed by each."""
    names = ("Model", "Dataset", "Mode", "Devices", "Optimizer", "Variables")
    heading = {name: rf"\b{name}:\s+(\S.*)" for name in names}
    heading |= {"of_all": r"\b([\d.]+) global", "of_one": r"\b([\d.]+) per device"}
    for run in sections(printed, heading, {"total": r"\btotal images/sec: (\S+)"}, "Model"):
        line = run.results[-1].number
        model, of_all, of_one = (run.value(name) for name in ("Model", "of_all", "of_one"))
        if not model or not of_all or not of_one:
            raise printed.refused("no model or batch size stands before this total; import the whole log", line)
        mode = run.value("Mode") or TRAINING  # which the oldest versions do not print
        if mode != TRAINING:
            yield Skipped(run.line, f"Mode: {mode}; only trainings are imported")
            continue
        devices = max(1, round(float(of_all) / float(of_one)))
        if len(run.results) > devices:
            why = f"{len(run.results)} totals of {devices} devices: another run's heading is missing"
            raise printed.refused(f"{why}; import the whole log", run.results[devices].number)
        gpus = "gpu" in (run.value("Devices") or "").lower()
        case = case_of(
            printed.framework or "tensorflow",
            run.value("Variables") or UNKNOWN,
            model,
            Placement(device="cuda" if gpus else "cpu", ranks_per_node=devices),
            round(float(of_one)),
            data=run.value("Dataset") or UNKNOWN,
            optimiser=run.value("Optimizer") or UNKNOWN,
        )
        rate = median(float(total.values[0] or "") for total in run.results)
        yield Speed(case=case, samples_per_second=rate, origin=printed.origin("tf_cnn_benchmarks", line, run.line))


def horovod_synthetic(printed: Printed) -> Iterator[Result | Skipped]:
    """Horovod's pytorch_synthetic_benchmark.py and its like for other frameworks."""
    heading = {"model": r"\bModel: (\S+)$", "batch": r"\bBatch size: (\d+)$", "of": r"\bNumber of (?:GPU|CPU)s: (\d+)$"}
    results = {
        "part": r"\bIter #\d+: (\S+) img/sec per",
        "total": r"\bTotal img/sec on (\d+) (GPU|CPU)\(s\): (\S+)",
    }
    for run in sections(printed, heading, results, "model"):
        totals = run.of("total")
        if not totals:
            continue  # it ended, or was ended, before
        line, (devices, device, total) = totals[0].number, (str(value) for value in totals[0].values)
        model, batch = run.value("model"), run.value("batch")
        if not model or not batch:
            raise printed.refused("no line `Model:` or `Batch size:` stands before it; import the whole output", line)
        if run.value("of") not in (None, devices):
            raise printed.refused(
                f"it is of {devices}, its heading of {run.value('of')}; import the output of one", line
            )
        if run.results[-1].number > line:
            why = "no line `Model:` stands between this and the total before it"
            raise printed.refused(f"{why}; import the whole output", run.results[-1].number)
        each = [float(part.values[0] or "") for part in run.of("part")]
        if each and abs(fmean(each) * int(devices) - float(total)) > 0.05 * int(devices) + 0.05 + 0.01 * float(total):
            why = f"the parts before it, of {fmean(each):.1f} per {device} in the mean, are not those of this total"
            raise printed.refused(f"{why}; import the output of one run", line)
        place = Placement(device="cuda" if device == "GPU" else "cpu", ranks_per_node=int(devices))
        case = case_of(printed.framework or "horovod", "horovod", model.lower(), place, int(batch), data="synthetic")
        yield Speed(
            case=case,
            samples_per_second=float(total),
            parts=tuple(part * int(devices) for part in each),
            origin=printed.origin("Horovod synthetic benchmark", line, run.line),
        )


def notes_of(folder: RunFolder) -> list[str]:
    """Return what a page reports of the programs whose results a folder holds."""
    return [NOTES[program] for program in imported(folder).programs if program in NOTES]


def _rows(printed: Printed, heading: str) -> Iterator[tuple[int, int, dict[str, str]]]:
    """Yield (line, line of the heading, cells by column); RequestError for a row of other columns."""
    for number, found in printed.matches(heading.replace(",", SEPARATOR)):
        if not re.search(heading, found[0]):
            mark = re.findall(SEPARATOR, found[0])[0]
            why = f"its columns are separated by {mark!r}, those of the benchmark's own table by ','"
            raise printed.refused(f"{why}; save it with commas between bare cells, and points in numbers", number)
    for table in sections(printed, {"columns": rf"^(.*?)({heading})$"}, ROW, "columns"):
        for heading_line, _, (prefix, columns) in table.of("columns")[-1:]:
            names = str(columns).split(",")
            for row in table.of("row"):
                text = str(row.values[0])[len(prefix or "") :]
                cells = text.split(",")
                numbers = [bool(re.fullmatch(f"({NUMBER})?", cell)) for cell in cells[1:]]
                if len(cells) == len(names) and all(numbers):
                    yield row.number, heading_line, dict(zip(names, cells, strict=True))
                elif (numbers and all(numbers)) or (len(cells) == len(names) and any(numbers)) or DECIMAL.search(text):
                    why = f"this row does not have the columns {columns}"
                    raise printed.refused(f"{why}; import it as it was written", row.number)


def timm(printed: Printed) -> Iterator[Result | Skipped]:
    """The tables of timm's benchmark.py (https://github.com/huggingface/pytorch-image-models).

    A table's name tells the precision and the GPU; without it they are unknown.
    """
    named = re.search(TIMM, printed.path.name)
    about = named.groupdict(default="") if named else {}
    known = {name: about[name] for name in (SYSTEM, "layout") if name in about}
    known |= {"compiled": "dynamo"} if about.get("dynamo") else {}
    precision = about.get("precision", UNKNOWN)
    place = Placement(device="cpu" if "cpu-" in about.get(SYSTEM, "") else "cuda")
    for line, run, cells in _rows(printed, r"model,(?:\w+,)*(?:infer|train)_samples_per_sec(?:,\w+)*"):
        for kind, passes, strategy in (("train", (NATIVE,), "single"), ("infer", (OFFLINE,), "inference")):
            rate = float(cells.get(f"{kind}_samples_per_sec") or 0)
            if not rate:
                continue  # not measured, or it failed
            case = case_of(
                "pytorch",
                strategy,
                cells["model"],
                place,
                int(cells.get(f"{kind}_batch_size") or 0),
                passes=passes,
                precision=PRECISIONS.get(precision, precision),
                knobs={**known, "pixels": int(cells.get(f"{kind}_img_size") or 0)},
            )
            yield Speed(case=case, samples_per_second=rate, origin=printed.origin("timm's benchmark.py", line, run))


def lambda_labs(printed: Printed) -> Iterator[Result | Skipped]:
    """The tables of https://github.com/lambdal/deeplearning-benchmark, `pytorch-train-throughput-fp16.csv` and others.

    The batch is in the table next to it, whose name has `bs` in place of `throughput`.
    """
    heading = r"name_gpu,num_gpu(?:,\w+)+"
    batches: dict[str, dict[str, str]] = {}
    for line, run, cells in _rows(printed, heading):
        if not batches:
            batches = _batches(printed, heading, line)
        name, count = cells["name_gpu"], int(float(cells["num_gpu"]))
        sizes = batches.get(name)
        if sizes is None:
            yield Skipped(line, f"the table of batch sizes has no {name}; add it")
            continue
        precision = re.search("fp16|fp32", printed.path.name)
        for workload in OF_SAMPLES:
            rate = float(cells.get(workload) or 0)
            if not rate:
                continue  # not measured
            case = case_of(
                "pytorch",
                UNKNOWN,
                workload,
                Placement(ranks_per_node=count, device="cuda"),
                max(1, int(float(sizes[workload])) // count),
                data=UNKNOWN,
                precision=PRECISIONS[precision[0]] if precision else UNKNOWN,
                knobs={SYSTEM: re.sub(r"\b\d+ ?x ?", "", name)},
            )
            yield Speed(case=case, samples_per_second=rate, origin=printed.origin(LAMBDA, line, run))
    if batches:
        yield Skipped(1, f"{', '.join(OF_OTHERS)}: their columns count no samples")


def _batches(printed: Printed, heading: str, line: int) -> dict[str, dict[str, str]]:
    """Return the rows of the table of batch sizes by their first cells; RequestError if it is not there."""
    name = re.sub("throughput(-v\\d)?", "bs", printed.path.name)
    path = printed.path.with_name(name)
    if name == printed.path.name:
        raise printed.refused("its name has no `throughput`: import the one that has, in the same folder", line)
    if not path.is_file():
        raise printed.refused(f"its batch sizes are in {name}, as Lambda publishes them; put both in a folder", line)
    return {cells["name_gpu"]: cells for _, _, cells in _rows(printed_in(path), heading)}


READERS: dict[str, Callable[[Printed], Iterator[Result | Skipped]]] = {
    "the data-parallel article's JSON lines": article,
    "tf_cnn_benchmarks": tf_cnn_benchmarks,
    "Horovod's synthetic benchmarks": horovod_synthetic,
    "nccl-tests": nccl_tests,
    "MLPerf's training logs": mlperf,
    "the CSVs of timm's benchmark.py": timm,
    "Lambda's CSVs of PyTorch's throughput": lambda_labs,
}
