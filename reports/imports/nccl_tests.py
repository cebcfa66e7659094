"""The output of nccl-tests (https://github.com/NVIDIA/nccl-tests, src/util.cu): tables of text, or the JSON of `-J`.

The out-of-place times are taken. A run whose check of the results failed is refused.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from stagebench.reports.imports.printed import NUMBER, Line, Printed, Result, Section, Skipped, sections
from stagebench.suite.contracts.case import Case, Collective, Placement
from stagebench.suite.results.foreign import UNKNOWN, Exchange
from stagebench.suite.worker.case_parts import ITEMSIZES

PROGRAM = "nccl-tests"
TYPES = {"float": "float32", "half": "float16", "bfloat16": "bfloat16"}  # those that stagebench exchanges, too
OTHER_TYPES = "u?int(?:8|32|64)|char|int|double|f(?:p8_|8)e[45]m[23]"
OPERATIONS = {
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "alltoall": "all-to-all",
    "broadcast": "broadcast",
}
OTHERS = ("alltoallv", "gather", "hypercube", "reduce", "scatter", "sendrecv")
NAMES = "|".join(f"{name}_perf" for name in (*OPERATIONS, *OTHERS))
HEADING = {
    "program": rf"(?:Collective test starting: |(?<!concluded:)(?:^|[\s/'\"=]))((?:{NAMES})(?![a-z]))",
    "settings": r"#\s*nThread (\d+) nGpus (\d+)\b(.*)",
    "rank": r"\bRank\s+(\d+)\b(?:\s+Group\s+(\d+)\b)?.*?\bon\s+(\S+)\s+device\b",
    "columns": r"\bsize\s+count\s+(type\b.*\btime|type\b.*\bcputime)\b(.*)",
}
RESULTS = {
    "row": rf"(?:^|[\s:>|\]])(\d+)\s+(\d+)\s+({'|'.join(TYPES)}|{OTHER_TYPES})\s+(.*)",
    "check": r"Out of bounds values\s*:\s*\d+ (OK|FAILED)",
}
COLUMNS = ("redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw", "#wrong")
SUM, NO_ROOT = ("", "none", "sum"), ("", "-1", "0")


class Row(NamedTuple):
    """A message size, out of place."""

    line: int
    bytes: int
    type: str
    reduction: str  # "" and "none": it reduces nothing
    root: str
    microseconds: float


class Run(NamedTuple):
    """The output of a program of nccl-tests."""

    line: int
    operation: str
    ranks: Sequence[str]  # each rank's host
    iterations: int
    rows: Sequence[Row]


def nccl_tests(printed: Printed) -> Iterator[Result | Skipped]:
    """Yield every message of every run, out of place."""
    of_json = '"nccl_version"' in printed.text and printed.text.lstrip().startswith("{")
    for run in _of_json(printed) if of_json else _of_text(printed):
        yield from _exchanges(printed, run) if isinstance(run, Run) else [run]


def _exchanges(printed: Printed, run: Run) -> Iterator[Result | Skipped]:
    """Yield the messages of each type, reduction and root: a case each."""
    place = _placement(printed, run)
    settings: dict[tuple[str, str, str], list[Row]] = {}
    for row in run.rows:
        if row.bytes:  # a message that was rounded down to nothing is no exchange
            settings.setdefault((row.type, row.reduction, row.root), []).append(row)
    for (type_, reduction, root), rows in settings.items():
        if type_ not in TYPES:
            yield Skipped(rows[0].line, f"numbers of type {type_}; stagebench exchanges {', '.join(TYPES)}")
            continue
        sizes = Counter(row.bytes for row in rows)
        again = [row for row in rows if sizes[row.bytes] > 1]
        if again:
            why = f"{again[-1].bytes} bytes of {type_} are in another line of this run, too: several processes"
            raise printed.refused(f"{why} or cycles (-N) were printed; import the output of one", again[-1].line)
        more = [reduction] * (reduction not in SUM) + [f"root {root}"] * (root not in NO_ROOT)
        backend = f"nccl ({', '.join(more)})" if more else "nccl"
        dtype = TYPES[type_]
        counts = tuple(row.bytes // ITEMSIZES[dtype] for row in rows)
        one = Collective(backend, run.operation, counts, 0.0, dtype=dtype)
        case = Case(UNKNOWN, UNKNOWN, UNKNOWN, place, passes=(), collective=one)
        for row in rows:
            yield Exchange(
                case=case,
                hosts=tuple(dict.fromkeys(run.ranks)),
                bytes=row.bytes,
                seconds=row.microseconds * 1e-6,
                samples=run.iterations,
                origin=printed.origin(PROGRAM, row.line, run.line),
            )


def _placement(printed: Printed, run: Run) -> Placement:
    """Return the hosts and ranks; RequestError for one rank, and for hosts of different numbers of ranks."""
    if len(run.ranks) < 2:
        why = "one rank exchanges with nobody; of several processes, nccl-tests was built without MPI"
        raise printed.refused(f"{why}; build it with MPI=1 and run it again", run.line)
    each = Counter(run.ranks)
    if len(set(each.values())) > 1:
        why = f"its hosts have {', '.join(map(str, each.values()))} ranks, and stagebench has no such placement"
        raise printed.refused(f"{why}; import a run with as many ranks on each host", run.line)
    return Placement(nodes=len(each), ranks_per_node=len(run.ranks) // len(each), device="cuda")


def _of_text(printed: Printed) -> Iterator[Run | Skipped]:
    found = [one for one in sections(printed, HEADING, RESULTS, "settings", "program") if one.of("row")]
    named = any(one.of("program") for one in found)
    of_file = re.search(rf"(?:^|[^a-z])({NAMES})", printed.path.name)
    for section in found:
        if not section.of("rank"):
            why = "no line `Rank ... device ...` before it says how many ranks there were"
            raise printed.refused(f"{why}; import the whole output", section.of("row")[0].number)
        ranks = _ranks(section)
        programs = section.of("program")
        program = programs[-1].values[0] if programs else of_file[1] if of_file and not named else None
        if program is None:
            known = ", ".join(f"{name}_perf" for name in OPERATIONS)
            raise printed.refused(f"nothing says which of {known} printed it; put its command before it", section.line)
        operation = OPERATIONS.get(program.removesuffix("_perf"))
        if operation is None:
            yield Skipped(section.line, f"{program} is no operation that stagebench measures; leave it out")
            continue
        settings = section.of("settings")[0] if section.of("settings") else None
        times = re.search(r"(?<!warmup )(?<!agg )iters: (\d+)", settings.values[2] or "") if settings else None
        yield Run(section.line, operation, ranks, int(times[1]) if times else 1, _rows(section))


def _ranks(section: Section) -> list[str]:
    """Return each rank's host, by rank; RequestError where they are not the ranks of one group."""
    hosts: dict[int, str] = {}
    groups: dict[str, int] = {}
    for number, _, (text, group, host) in section.of("rank"):
        rank = int(text or 0)
        if rank in hosts:
            why = f"rank {text} is here twice: these processes never met, as nccl-tests was built without MPI"
            raise section.printed.refused(f"{why}; build it with MPI=1 and run it again", number)
        hosts[rank] = host or ""
        groups.setdefault(group or "", number)
    number = section.of("rank")[-1].number
    if len(groups) > 1:
        why = f"groups {' and '.join(groups)} exchange at once (NCCL_TESTS_SPLIT)"
        raise section.printed.refused(f"{why}, which is no case of stagebench; import a run of one group", number)
    devices = [int(one or 1) * int(two or 1) for _, _, (one, two, *_) in section.of("settings")]
    if sorted(hosts) != list(range(len(hosts))) or (devices and len(hosts) % devices[0]):
        raise section.printed.refused("ranks are missing up to here; import the whole output", number)
    return [hosts[rank] for rank in range(len(hosts))]


def _rows(section: Section) -> list[Row]:
    """Return the rows by their heading; RequestError for a failed check, and for a row that is not whole."""
    printed, checked = section.printed, False
    headings = [f"{values[0]}{values[1]}".split()[1:] for _, _, values in section.of("columns")]
    columns = headings[-1] if headings else list(COLUMNS)
    if "cputime" in columns:
        why = "its times are those of the CPU's calls (-C), not of the exchanges"
        raise printed.refused(f"{why}; run it again without -C", section.of("columns")[-1].number)
    rows = []
    for line in section.results:
        if line.kind == "row" and checked:
            raise printed.refused("no heading stands before this row; import the whole output", line.number)
        if line.kind == "row":
            rows.append(_row(printed, columns, line))
            continue
        checked = True
        if line.values[0] == "FAILED":
            raise printed.refused("the check of the results FAILED; import a run without wrong results", line.number)
    if "error" in columns and not checked:
        why = "no line `Out of bounds values` after it says whether the results were right"
        raise printed.refused(f"{why}; import the whole output", section.results[-1].number)
    return rows


def _row(printed: Printed, columns: Sequence[str], line: Line) -> Row:
    size, _, type_, rest = (value or "" for value in line.values)
    cells, first = rest.split(), columns.index("time")
    numbers = [at for at, name in enumerate(columns) if name in ("time", "algbw", "busbw")]
    whole = len(cells) == len(columns) + ("timestamp" in columns)  # a time stamp is a date and a time
    if not whole or not all(re.fullmatch(NUMBER, cells[at]) for at in numbers):
        why = f"this row does not have the columns {' '.join(columns)}"
        raise printed.refused(f"{why}; import it as it was printed", line.number)
    wrong = [cells[at] for at, name in enumerate(columns) if name == "#wrong"]
    if not set(wrong) <= {"0", "N/A"}:
        raise printed.refused(f"#wrong is {' and '.join(wrong)}; import a run without wrong results", line.number)
    told = dict(zip(columns[:first], cells, strict=False))
    return Row(line.number, int(size), type_, told.get("redop", ""), told.get("root", ""), float(cells[first]))


def _of_json(printed: Printed) -> Iterator[Run | Skipped]:
    """Read the files that `-J` writes, one or several joined."""
    text, at = printed.text, 0
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        line = text.count("\n", 0, at) + 1
        try:
            content, at = json.JSONDecoder().raw_decode(text, at)
            program = PurePath(content["args"][0]).name
            name = re.match(rf"(?:{NAMES})(?![a-z])", program)
            if name is None or name[0].removesuffix("_perf") not in OPERATIONS:
                yield Skipped(line, f"{program} is no operation that stagebench measures; leave it out")
                continue
            yield _run(printed, line, OPERATIONS[name[0].removesuffix("_perf")], content)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
            raise printed.refused(f"no whole output of -J ({error!r}); import it as it was written", line) from None


def _run(printed: Printed, line: int, operation: str, content: dict[str, Any]) -> Run:
    """Read a file of `-J`; RequestError for a failed check."""
    config = content["config"]
    if len({device["group"] for device in config["devices"]}) > 1:
        why = "several groups exchange at once (NCCL_TESTS_SPLIT), which is no case of stagebench"
        raise printed.refused(f"{why}; import a run of one group", line)
    if content["out_of_bounds"]["okay"] != "true":
        raise printed.refused("the check of the results FAILED; import a run without wrong results", line)
    rows = []
    for result in content["results"]:
        what = f"the result of {result['size']} bytes"
        for place in ("out_of_place", "in_place"):
            if (result.get(place) or {}).get("nwrong"):
                raise printed.refused(f"{what} has wrong numbers; import a run without", line)
        if "time" not in (result["out_of_place"] or {}):
            why = "has no time of the exchange out of place (-C prints the CPU's calls)"
            raise printed.refused(f"{what} {why}; run it again", line)
        seconds, root = float(result["out_of_place"]["time"]), str(result["root"]).strip()
        rows.append(Row(line, int(result["size"]), result["type"], result["redop"], root, seconds))
    # A process with several devices writes its first one alone.
    each = int(config["nthreads"]) * int(config["ngpus"])
    ranks = [str(device["hostname"]) for device in config["devices"] for _ in range(each)]
    return Run(line, operation, ranks, int(config["iterations"]), rows)
