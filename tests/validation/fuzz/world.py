"""What fuzzed files and commands stand among: run folders of every format, made and imported, and data sets.

It is made once for a process. One of the runs is a real one, by the reference adapter, with a network of its own.
"""

import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from stagebench.suite.results.run_folder import RunFolder
from stagebench.workloads.networks import by_name
from tests.support import plans
from tests.validation.fuzz import broken

ROOT = Path(__file__).parents[3]
FIXTURES = ROOT / "tests" / "fixtures"
FILES = ("run.json", "cases.json", "plan.toml", "hosts", "proofs", "records", "networks", "foreign.json")
NOT_READ = shutil.ignore_patterns("bundles", "attempts", ".lock")
CASE = {"adapter": "reference", "strategy": "single", "workload": ["mnist_small", "tiny.py"], "precision": "float64"}
PLAN = plans.brief({**CASE, "batch": 2})
NETWORK = """\
from stagebench.workloads.build import Builder

def network():
    b = Builder("tiny", (1, 4, 4), 2)
    b.head(b.dense("fc", b.flatten("flat", "input"), 2))
    return b.graph
"""
LAYERS = '[{"layer": "a", "forward_s": 0.01, "backward_s": 0.02, "bytes": 1000000}]'


@cache
def world() -> Path:
    """The folder of all; it is gone with the process."""
    place = Path(_kept().name)
    (place / "plan.toml").write_text(PLAN)
    (place / "tiny.py").write_text(NETWORK)
    (place / "layers.json").write_text(LAYERS)
    (place / "empty").touch()
    stagebench("run", str(place / "plan.toml"), "-o", str(place / "real"), "--no-proofs")
    _another(RunFolder(place / "real"), place / "again")
    for each in sorted((FIXTURES / "runs").glob("format-*/*/")):
        shutil.copytree(each, place / f"{each.name}-{each.parent.name[-1]}")
    newest = RunFolder(max(place.glob("training-*")))
    for workload in {entry.case.workload for entry in newest.cases}:
        newest.keep_network(by_name()[workload].graph())
    stagebench("import", str(FIXTURES / "foreign" / "horovod.log"), "-o", str(place / "imported"))
    stagebench("import", str(FIXTURES / "foreign" / "all_reduce_perf.txt"), "-o", str(place / "imported-comm"))
    (place / "set.npz").write_bytes(broken.arrays())
    for name in ("a", "b"):
        (place / "images" / name).mkdir(parents=True)
        (place / "images" / name / "one.jpg").write_bytes(broken.image("JPEG"))
    return place


def _another(run: RunFolder, place: Path) -> None:
    """The same records as another run's."""
    records = list(run.records())
    shutil.copytree(run.path, place, ignore=NOT_READ)
    other = RunFolder(place)
    other.write_about(run.about.but(id="another"))
    for record in records:
        (place / "records" / f"{record.case_id}-r{record.repeat}.json").unlink()
        other.write_record(record)


@cache
def _kept() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="stagebench-fuzz-")


def stagebench(*words: str) -> None:
    command = [sys.executable, "-m", "stagebench.suite.cli", *words]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


@cache
def runs() -> tuple[str, ...]:
    """Names of the run folders."""
    return tuple(sorted(path.parent.name for path in world().glob("*/run.json")))


def file_of(run: Path, name: str) -> Path | None:
    """A file of a run folder, the first of a folder's; None where it has none."""
    found = next(iter(sorted((run / name).iterdir())), None) if (run / name).is_dir() else run / name
    return found if found and found.is_file() else None


@cache
def whole_files() -> dict[str, bytes]:
    """By RUN/NAME: what stands in each file that is read of a run folder."""
    named = ((f"{run}/{name}", file_of(world() / run, name)) for run in runs() for name in FILES)
    return {name: path.read_bytes() for name, path in named if path}


def copied(run: str, place: Path) -> Path:
    """A fresh copy of what is read of a run."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(world() / run, place, ignore=NOT_READ)
    return place
