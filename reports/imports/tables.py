"""Tables that others publish as CSV: timm's benchmark.py, and Lambda's throughput of PyTorch.

A row belongs to the heading before it. What stands before the heading in its line, such as a rank or a clock, stands
before each row, too.
"""

import re
from collections.abc import Iterator

from stagebench.reports.imports.printed import NUMBER, Printed, Result, Skipped, case_of, printed_in, sections
from stagebench.suite.contracts.case import Placement
from stagebench.suite.results.foreign import SYSTEM, UNKNOWN, Speed
from stagebench.suite.worker.pass_kinds import NATIVE, OFFLINE

ROW = {"row": "^(.*,.*)$"}
PRECISIONS = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
# Of pytorch/README.md and NVIDIA's examples: the other columns of Lambda count tokens, or samples of sound.
OF_SAMPLES = ("ssd", "bert_base_squad", "bert_large_squad", "ncf", "resnet50")
OF_OTHERS = ("gnmt", "tacotron2", "transformerxlbase", "transformerxllarge", "waveglow")
TIMM = (
    r"benchmark-(?:train|infer)-(?P<precision>\w+)-(?P<layout>n\w+)-pt\d+-(?:cu\d+-)?(?P<system>.+?)"
    r"(?P<dynamo>-dynamo)?\."
)
LAMBDA = "Lambda's benchmarks"


def _rows(printed: Printed, heading: str) -> Iterator[tuple[int, int, dict[str, str]]]:
    """Yield (line, line of the heading, cells by column); RequestError for a row of other columns."""
    for table in sections(printed, {"columns": rf"^(.*?)({heading})$"}, ROW, "columns"):
        for heading_line, _, (prefix, columns) in table.of("columns")[-1:]:
            names = str(columns).split(",")
            for row in table.of("row"):
                cells = str(row.values[0])[len(prefix or "") :].split(",")
                numbers = [bool(re.fullmatch(f"({NUMBER})?", cell)) for cell in cells[1:]]
                if len(cells) == len(names) and all(numbers):
                    yield row.number, heading_line, dict(zip(names, cells, strict=True))
                elif (numbers and all(numbers)) or (len(cells) == len(names) and any(numbers)):
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
            yield Skipped(line, f"the table of batch sizes has no {name}")
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
