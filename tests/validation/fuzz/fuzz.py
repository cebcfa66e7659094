"""Fuzzing in process: plans, records, files of run folders, data sets and command lines, broken by Hypothesis.

    python tests/validation/fuzz/fuzz.py --inputs 100000 --seed 1
    python tests/validation/fuzz/fuzz.py --each 200 --target run --target line

Whatever comes in, a command ends well or with a StagebenchError of a reasonable length, within 5 seconds and 1 GB more
than it had before; nothing is started, and nothing written beyond a folder (`border`). Every refusal
names its place and a remedy. An input that fails is kept in candidates/, one of each kind of failure, the shortest, and
the next one is tried. What once failed stands in corpus/ (TARGET-WORD.bin) and is tried in the tests.
"""

import argparse
import contextlib
import faulthandler
import hashlib
import json
import os
import re
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))
sys.dont_write_bytecode = True

from hypothesis import HealthCheck, Phase, given, seed, settings  # noqa: E402 - the checkout stands first

from stagebench.suite.cli import LONG_WORD  # noqa: E402
from stagebench.suite.errors import StagebenchError  # noqa: E402
from tests.support.memory import little_memory  # noqa: E402
from tests.validation.fuzz.border import Crossed, border  # noqa: E402
from tests.validation.fuzz.targets import TARGETS  # noqa: E402

SECONDS, BYTES, LONGEST = 5, 1 << 30, 4000  # of an input, both; characters of a refusal
ROUND = 250  # inputs between two lines of progress
# What a refusal asks for begins a clause with one of these; or it says what would be right.
ASKED = (
    "add|ask|begin|build|call|choose|correct|create|end|export|fetch|fill|fix|free|get|give|go|import|install|keep|"
    "leave|make|measure|move|name|override|pack|pip|pick|point|put|read|remove|rename|replace|resume|run|save|see|set|"
    "stagebench|start|stop|switch|take|touch|try|turn|uninstall|unset|use|wait|write"
)
REMEDY = re.compile(
    rf"; (?:or |then |[^;]*, then |[^;]*, see |to change the plan's value )?(?:{ASKED})\b"
    r"|; it has |; it is measured again |; every layer needs |; these outputs are understood"
    r"|: (?:add|take|write|give|leave|move|name|put|save|sort) |should |did you mean|known: |wants |is one of "
    r"| are (?:needed|possible|wanted)\b|^name a plan |^to predict, give |; `stagebench |Try 'stagebench "
)
CORPUS, CANDIDATES = Path(__file__).parent / "corpus", Path(__file__).parent / "candidates"


class Hang(BaseException):
    """An input took more than SECONDS."""


@contextlib.contextmanager
def in_time() -> Iterator[None]:
    """`Hang` after SECONDS, and again every second: whoever catches everything may have caught it.

    What this process waited for a core, because others have them, is not counted.
    """
    began = time.monotonic() - without_a_core()

    def late(*_: object) -> None:
        if time.monotonic() - without_a_core() - began >= SECONDS:
            raise Hang(f"more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, SECONDS, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def in_folder(folder: Path) -> Iterator[None]:
    """Within it that is where everything is: what is relative, temporary or cached; no framework's environment is."""
    before, temporary, here = dict(os.environ), tempfile.tempdir, Path.cwd()
    os.environ.update(STAGEBENCH_CACHE=str(folder / "cache"), STAGEBENCH_TOX_DIR=str(folder / "none"))
    tempfile.tempdir = str(folder)
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(here)
        tempfile.tempdir = temporary
        os.environ.clear()
        os.environ.update(before)


def without_a_core() -> float:
    """Seconds for which this process could have run and had no core, by the kernel."""
    return int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9


def tried(target: str, content: bytes, folder: Path) -> str:
    """How it ended: "taken" or "refused"; anything else is raised."""
    TARGETS[target].begin()
    try:
        with in_folder(folder), border(folder), in_time(), little_memory(BYTES):
            TARGETS[target].reads(content, folder)
    except Crossed:
        return "taken"
    except StagebenchError as error:
        problem = fault(target, error, content, folder)
        if problem:
            raise ValueError(problem) from error
        return "refused"
    except PermissionError:  # what lies beyond the border; `main` has words for it
        return "refused"
    except OSError as error:
        if error.filename is None or len(str(error.filename)) < 200:  # likewise for names that are too long
            raise
        return "refused"
    return "taken"


def fault(target: str, refusal: StagebenchError, content: bytes, folder: Path) -> str | None:
    """What is wrong with a refusal of some content; None when nothing is. The folder itself is a place, too."""
    text = str(refusal)
    if any(isinstance(each, MemoryError) for each in causes(refusal)):
        return f"a refusal after {BYTES} bytes: {text}"
    if not 10 < len(LONG_WORD.sub(r"\1", text)) < LONGEST:
        return f"a refusal of {len(text)} characters: {text[:LONGEST]}"
    if not any(place in text for place in (*TARGETS[target].places(content), f"{folder} ")):
        return f"a refusal without its place: {text}"
    for problem in text.splitlines()[1:] * (target == "plan") or [text]:
        if not REMEDY.search(problem) and not problem.startswith("and "):
            return f"a refusal without a remedy: {problem}"
    return None


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and those that it was raised for."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


class Failures:
    """What failed, by its kind: how often, and the shortest input, kept as a candidate for the corpus."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.kinds: Counter[str] = Counter()
        self.words: dict[str, str] = {}
        self._shortest: dict[str, int] = {}

    def add(self, content: bytes, error: BaseException) -> None:
        frames = traceback.extract_tb(error.__traceback__)
        own = [each for each in frames if "/tests/validation/fuzz/" not in each.filename and str(ROOT) in each.filename]
        where = f"{own[-1].filename}:{own[-1].lineno}" if own and not isinstance(error, ValueError) else ""
        text = f"{type(error).__name__}: {error}"
        kind = hashlib.sha256(f"{where}{re.sub(r'[^a-z ]', '', text)[:60]}".encode()).hexdigest()[:8]
        self.kinds[kind] += 1
        if len(content) < self._shortest.get(kind, len(content) + 1):
            self._shortest[kind] = len(content)
            self.words[kind] = f"{text[:300]} {where.removeprefix(str(ROOT))}".strip()
            CANDIDATES.mkdir(exist_ok=True)
            (CANDIDATES / f"{self.target}-{kind}.bin").write_bytes(content)


def fuzz(target: str, inputs: int, number: int, folder: Path, failures: Failures | None = None) -> Counter[str]:
    """How so many inputs of a target ended: "taken", "refused", or as one of `failures`, without which it is raised."""
    counts: Counter[str] = Counter()

    @seed(number)
    @settings(
        max_examples=inputs,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate,),
    )
    @given(TARGETS[target].inputs)
    def each(content: bytes) -> None:
        (folder / "input").write_bytes(content)  # what a process that dies was reading
        try:
            counts[tried(target, content, folder)] += 1
        except (Exception, Hang) as error:
            if failures is None:
                raise
            failures.add(content, error)
            counts["failures"] += 1

    each()
    return counts


def campaign(target: str, inputs: int, number: int) -> dict[str, Any]:
    """All inputs of a target, in rounds of a seed each, with a line of progress after each."""
    counts: Counter[str] = Counter()
    failures, began, folder = Failures(target), time.process_time(), Path(tempfile.mkdtemp(prefix=f"fuzz-{target}-"))
    while sum(counts.values()) < inputs:
        wanted = min(ROUND, inputs - sum(counts.values()))
        counts += fuzz(target, max(wanted, 10), number, folder, failures)
        number += 1
        done, spent = sum(counts.values()), time.process_time() - began
        progress = {"inputs": done, **counts, "a second of a core": round(done / spent, 1)}
        sys.stderr.write(f"{target}: {progress}\n")
    for kind, times in failures.kinds.most_common():
        sys.stderr.write(f"  {times} x {target}-{kind}.bin: {failures.words[kind]}\n")
    return {**progress, "next seed": number}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--inputs", type=int, default=100_000, help="of all targets together")
    parser.add_argument("--each", type=int, help="of each target, instead")
    parser.add_argument("--target", action="append", choices=TARGETS, help="only this one (repeatable)")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    faulthandler.enable()
    if os.access("/dev/shm", os.W_OK):  # each input is a few files: a disk would be most of the time
        tempfile.tempdir = "/dev/shm"
    found = {
        target: campaign(target, asked.each or int(asked.inputs * TARGETS[target].share), asked.seed)
        for target in asked.target or TARGETS
    }
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    return int(any(each.get("failures") for each in found.values()))


if __name__ == "__main__":
    sys.exit(main())
