"""Command lines from the command line's own tree: every command with its options, of valid and hostile values.

Words in capitals stand for places (`placed`), so that a line in the corpus means the same everywhere.
"""

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

import typer
from hypothesis import strategies as st

from stagebench.suite.cli import app
from tests.validation.fuzz.world import FIXTURES, copied, world

HOSTILE = ("", " ", "-1", "0", "1e999", "nan", "inf", "9" * 400, "..", "/", "~nobody/x", "a" * 5000, "é\u202e\x1b[31m",
           "$(reboot)", "`id`; ls", "a,b,,a", "*", "%s%n", "--", "-o", "=", "a=b=c", "[8,[9]]", "{'a':1}", "\ud800",
           "\n", "NOWHERE", "EMPTY", "PIPE", "FOLDER", "RUN", "SET", "0x10", "1_000", "\uff11\uff12", "true", "none",
           "4096", "1e-9", "host name", "-oProxyCommand=id", "user@host", "[::1]", "a.b.c.d.", "a,a")  # fmt: skip
# By an option's name what it usually takes; what is not here goes by its type.
USUAL: dict[str, tuple[str, ...]] = {
    "run": ("RUN", "COMM", "TRAINING", "IMPORTED", "OLD"), "runs": ("RUN", "AGAIN", "TRAINING", "COMM", "OLD"),
    "before": ("RUN", "TRAINING"), "after": ("AGAIN", "OLD"), "history": ("AGAIN", "OLD"), "comm": ("COMM", "OLDCOMM"),
    "directory": ("RUNS", "RUN", "FOLDER"), "output": ("OUT", "OUT/new", "RUN"), "docs": ("FOLDER",),
    "plan": ("PLAN", "quick", "paper", "scaling", "tiny"), "scale": ("small", "tiny"), "set_": ("sampling.steps=5",
    "batch=[8,16]", "sampling.processes=2", "lr=[0.1]", "cases.0.batch=4"), "adapter": ("reference", "pytorch",
    "reference,pytorch"), "workload": ("mnist_small", "alexnet", "NETWORK", "resnet50"), "strategy": ("single", "ddp"),
    "batch": ("8", "8,16"), "ranks": ("1", "2", "2,4", "1-8"), "nodes": ("1", "2"), "devices": ("1", "2"),
    "device": ("cpu", "cuda"), "threads": ("1", "2"), "data": ("synthetic", "real", "SET", "IMAGES", "digits"),
    "readers": ("0", "2"), "precision": ("float32", "float64"), "tuning": ("default", "tuned"), "optimiser": ("sgd",
    "adam"), "passes": ("native", "native,staged", "train"), "processes": ("1", "5"), "steps": ("3",), "seconds":
    ("0.1",), "knob": ("schedule=1f1b", "epochs=2", "compression=2bit"), "hosts": ("a,b", "localhost"), "launcher":
    ("auto", "local", "mpiexec", "ssh", "slurm", "kubernetes"), "python": ("reference=/usr/bin/python3",
    "pytorch=NOWHERE"), "until": ("3%",), "for_": ("20min", "1h"), "threshold": ("3", "0.05"), "across": ("adapter",
    "batch", "device"), "schedule": ("wfbp", "none", "1f1b", "gpipe"), "algorithm": ("ring", "tree"), "layers":
    ("LAYERS",), "formats": ("csv", "json", "schema", "markdown", "latex", "junit", "trace", "parquet", "tensorboard"),
    "address": ("https://example.org/x",), "files": ("LOG", "LOG2", "RUN/run.json"), "framework": ("pytorch",),
    "image": ("registry/x:1",), "namespace": ("default",), "claim": ("results",), "secret": ("ssh",), "name": ("mine",),
    "to": ("cbf", "lmdb", "recordio"), "on_error": ("fail", "skip"), "size": ("64x48",), "sizes": ("4:1M", "1K:64K"),
    "op": ("all-reduce", "broadcast"), "dtype": ("float32",), "backend": ("gloo", "mpi4py"), "trace": ("OUT/t.json",),
    "chakra": ("OUT/c",), "count": ("2",), "rate": ("100", "1gbit"), "host": ("lab1",), "command": ("true",), "alpha":
    ("1e-5",), "beta": ("1e9",), "network": ("10.1.0.0/16",), "compression": ("2bit",), "stages": ("2",),
}  # fmt: skip
# Places in tests.validation.fuzz.world, and among the fixtures.
WORLD = {"AGAIN": "again", "COMM": "comm-4", "TRAINING": "training-4", "IMPORTED": "imported", "OLD": "training-1",
         "OLDCOMM": "comm-2", "IMAGES": "images", "PLAN": "plan.toml", "NETWORK": "tiny.py", "LAYERS": "layers.json",
         "SET": "set.npz", "EMPTY": "empty"}  # fmt: skip
LOGS = {"LOG": "horovod.log", "LOG2": "all_reduce_perf.txt"}
LONG = ("classes", "images")  # as many as are allowed are work for hours
OF_A_TYPE = {int: ("1", "2", "3"), float: ("0.5", "2", "100")}


def placed(words: list[str], out: Path) -> Iterator[str]:
    """The words with places for those in capitals; what a command may write is below `out`."""
    for word in words:
        first, slash, rest = word.partition("/")
        place = _place(first, out) if first.isupper() else None
        yield word if place is None else f"{place}{slash}{rest}"


def _place(word: str, out: Path) -> Path | None:
    """Where it stands; made where it is a command's to write, or of an odd kind."""
    if word in WORLD:
        return world() / WORLD[word]
    if word in LOGS:
        return FIXTURES / "foreign" / LOGS[word]
    match word:
        case "RUN" | "RUNS":
            run = out / "run" if (out / "run").exists() else copied("real", out / "run")
            return run if word == "RUN" else out
        case "OUT" | "NOWHERE":
            return out / word.lower()
        case "FOLDER":
            (out / "folder").mkdir(exist_ok=True)
            return out / "folder"
        case "PIPE":
            if not (out / "pipe").exists():
                os.mkfifo(out / "pipe")
            return out / "pipe"
    return None


@cache
def commands() -> dict[tuple[str, ...], Any]:
    """Every command that has no others below it, by its words."""
    return dict(_below((), typer.main.get_command(app.build())))


def _below(words: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield words, command
    for name, each in (inner or {}).items():
        yield from _below((*words, name), each)


def values(parameter: Any) -> Any:
    """Mostly what it takes."""
    annotation = parameter.type_descriptor.annotation
    kind = next((each for each in OF_A_TYPE if each in (annotation, *get_args(annotation))), None)
    usual = USUAL.get(parameter.name, OF_A_TYPE.get(kind, ("x",)) if kind else ("x",))
    limits = (parameter.min, None if parameter.name in LONG else parameter.max)
    bounds = tuple(str(bound + step) for bound in limits if bound for step in (-1, 0, 1))
    good = st.sampled_from(usual + bounds[1:2] + bounds[4:5])
    hostile = st.one_of(st.sampled_from(HOSTILE + bounds), st.text(max_size=8))
    return st.integers(0, 4).flatmap(lambda chance: good if chance else hostile)


@st.composite
def lines(draw: Any) -> bytes:
    """A command with what it requires and some of its options; once in a while without, or with a word too many."""
    words, command = draw(st.sampled_from(sorted(commands().items(), key=lambda item: item[0])))
    found = list(words)
    parameters = command.params
    arguments = [each for each in parameters if each.opts[0][:1] != "-"]
    for each in arguments:
        if each.required or draw(st.booleans()):
            found += [draw(values(each)) for _ in range(draw(st.integers(1, 2)) if each.nargs == -1 else 1)]
    options = [each for each in parameters if each not in arguments]
    chosen = draw(st.lists(st.sampled_from(options), max_size=4)) if options else []
    for each in [*(each for each in options if each.required), *chosen]:
        found.append(draw(st.sampled_from([*each.opts, *each.secondary_opts])))
        if not each.is_flag:
            found.append(draw(values(each)))
    if draw(st.integers(0, 19)) == 0:
        found.insert(draw(st.integers(0, len(found))), draw(st.sampled_from([*HOSTILE, "--help", "--version"])))
    return "\0".join(word.replace("\0", "") for word in found).encode(errors="surrogatepass")


LINES = lines()
