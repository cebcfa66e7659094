"""Everything that wants one GPU, as a list of short steps; docs/gpu.md reports their results.

    PYTHONPATH=.:tests/conformance python tests/validation/on_a_card.py OUT --minutes 6
    python tests/validation/on_a_card.py OUT --list
    PYTHONPATH=.:tests/conformance python tests/validation/on_a_card.py OUT --only graph --only precisions-resnet50

The Python that runs it must have PyTorch with CUDA, and stagebench; JAX, mpi4py and lmdb where their steps are to pass.
Every step leaves its output in OUT/STEP.txt, and a line in the record, on_a_card.json, before the next one starts. So
the time may end at any moment, and the next occasion goes on with the first step that no card has passed. Steps whose
files it needs, data and oracles, are run again where OUT lacks them.

On a machine without a network, carried.sh brings the tree and the wheels that are missing, and runs this program.

`--rehearse` runs the same steps on CPUs, most of them with one small network in the place of the others: what fails
there for any other reason than a missing GPU would fail on the GPU, too.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

GRACE = 5.0  # seconds between the two signals that stop a step
AT_ONCE = 8  # steps that share the card, where nothing is timed
ROOT = Path(__file__).resolve().parents[2]
RECORD = Path(__file__).with_suffix(".json")
PLAN = ROOT / "suite" / "plans" / "paper.toml"
PACKAGES = ("torch", "torchvision", "jax", "mpi4py", "numpy")
NETWORKS = ("resnet50", "alexnet", "googlenet")
PAPER = ("pytorch", "caffempi", "jax")  # whose rows are measured
ORACLE = "proof-pytorch-{}-float32"  # the step that computes a network's
REHEARSAL = {"cuda": "cpu", "256": "2", "12": "2", **dict.fromkeys(NETWORKS, "mnist_small")}
PATIENCE = 20.0  # times as long a step may take there
TIME_UP = "the time was up"


class Step(NamedTuple):
    """One run of Python."""

    command: tuple[str, ...]  # {out} is the folder of the results, {step} this step's name
    limit: float = 60.0  # seconds
    beside: str = ""  # steps in a row with the same word time nothing and share the card; the others have it alone
    adapters: str = ""  # that tests/gpu is about, with commas between; empty: all
    keep: str = ""  # TOML: {out}/{step}.toml is the plan `paper`, whose scale `card` keeps these rows alone
    divide: int = 1  # their batch
    needs: tuple[str, ...] = ()  # steps whose files it finds: a machine that lacks them runs these again


def stagebench(*words: str, limit: float = 60.0, beside: str = "") -> Step:
    return Step(("-m", "stagebench.suite.cli", *words), limit, beside)


def proof(adapter: str, network: str, precision: str, *knobs: str, limit: float = 90.0, beside: str = "proofs") -> Step:
    case = ["--adapter", adapter, "--workload", network, "--precision", precision]
    case += [word for knob in knobs for word in ("--knob", knob)]
    tuned = ("--device", "cuda", "--strategy", "single", "--tuning", "tuned", "--json")
    return stagebench("verify", *tuned, *case, limit=limit, beside=beside)


def conformance(adapter: str, tests: str, limit: float = 120.0, at_once: str = "8", beside: str = "") -> Step:
    words = ("-v", "-r", "s", "-p", "xdist", "-p", "no:cacheprovider", "-n", at_once, "--durations", "10")
    return Step(("-m", "pytest", "tests/gpu", *words, "-k", tests), limit, beside, adapter)


def row(adapter: str, kept: str, limit: float = 60.0) -> Step:
    """A row of `paper --scale card`, proven and measured, in a run of its own; `stagebench collect` joins them."""
    words = ("run", "{out}/{step}.toml", "--scale", "card", "--set", "sampling.processes=1", "-o", "{out}/{step}")
    return stagebench(*words, limit=limit)._replace(keep=f'adapter = "{adapter}"\n{kept}\n', needs=("data",))


def paper(adapter: str, network: str, limit: float = 60.0) -> dict[str, Step]:
    step = row(adapter, f'workload = "{network}"\nreaders = 12', limit)
    if network in NETWORKS:
        step = step._replace(needs=(*step.needs, ORACLE.format(network)))
    # With 1,024 samples, AlexNet's first tuned step in float32 had not ended after 55 s on an H100.
    return {f"paper-{adapter}-{network}": step._replace(divide=4 if network == "alexnet" else 1)}


def from_files(*words: str, limit: float = 60.0) -> Step:
    """ResNet-50 in bfloat16, read by 12 readers."""
    case = ("--adapter", "pytorch", "--workload", "resnet50", "--batch", "256", "--device", "cuda")
    case = (*case, "--tuning", "tuned", "--precision", "bfloat16", "--data", "imagenet-like", "--readers", "12")
    case = (*case, "--processes", "1", "--steps", "20", "--seconds", "1", "--set", "sampling.warmup_limit=4")
    step = stagebench("run", *case, "--set", "sampling.quick=true", *words, "-o", "{out}/{step}", limit=limit)
    return step._replace(needs=("data", ORACLE.format("resnet50")))


def shared(adapter: str, strategy: str) -> Step:
    """Two ranks on the card: does an asynchronous exchange train?"""
    case = ("--adapter", adapter, "--strategy", strategy, "--workload", "mnist_small", "--batch", "64", "--ranks", "2")
    case = (*case, "--device", "cuda", "--tuning", "tuned", "--set", "share_devices=true", "--passes", "native")
    brief = ("--processes", "1", "--steps", "20", "--seconds", "1", "--set", "sampling.quick=true")
    return stagebench("run", *case, *brief, "-o", "{out}/{step}", beside="conformance")


def inferring(adapter: str) -> Step:
    case = ("--adapter", adapter, "--strategy", "inference", "--workload", "resnet50", "--batch", "32")
    case = (*case, "--device", "cuda", "--tuning", "tuned", "--processes", "1", "--steps", "700", "--seconds", "1")
    brief = ("--set", "sampling.warmup_limit=4", "--set", "sampling.quick=true")
    step = stagebench("run", *case, *brief, "-o", "{out}/{step}", limit=90.0)
    return step._replace(needs=(ORACLE.format("resnet50"),))


def beside_a_loop(mode: str, limit: float = 60.0) -> Step:
    words = ("--device", "cuda", "--network", "resnet50", "--batch", "256", "--precision", "bfloat16")
    return Step(("tests/validation/pytorch_native.py", *words, "--rounds", "12", "--mode", mode), limit)


def precisions(network: str, *ways: str, limit: float = 45.0) -> dict[str, Step]:
    words = ("tests/validation/gpu_precisions.py", f"{network}:256", "--device", "cuda", "--way")
    return {f"precisions-{network}-{way}": Step((*words, way), limit) for way in ways}


STEPS = {
    "doctor": stagebench("doctor", beside="first"),
    "data": stagebench("data", "make", "imagenet-like", beside="first"),
    # These wait for their networks' oracles, which CPUs compute; later steps find them in the cache.
    **{ORACLE.format(name): proof("pytorch", name, "float32", limit=120.0, beside="first") for name in NETWORKS},
    "conformance-pytorch": conformance("pytorch", "not out_of_memory", limit=240.0, beside="first"),
    **{
        f"proof-pytorch-{name}-{precision}": proof("pytorch", name, precision)
        for name in NETWORKS
        for precision in ("tf32", "bfloat16", "float16")
    },
    "proof-graph-float32": proof("pytorch", "resnet50", "float32", "cuda_graph=true"),
    "proof-graph-bfloat16": proof("pytorch", "resnet50", "bfloat16", "cuda_graph=true"),
    "proof-deterministic": proof("pytorch", "resnet50", "float32", "deterministic=on"),
    **{
        f"proof-caffempi-{name}-{precision}": proof("caffempi", name, precision)
        for name in NETWORKS
        for precision in ("float32", "tf32")
    },
    **{  # XLA takes no memory in advance: these share the card
        f"proof-jax-resnet50-{precision}": proof("jax", "resnet50", precision, "preallocate=0", limit=150.0)
        for precision in ("tf32", "bfloat16", "float16")
    },
    "loss-scale": Step(
        ("-m", "pytest", "tests/adapters/pytorch/test_trainer.py", "-v", "-p", "no:cacheprovider", "-k", "float16")
    ),
    "conformance-caffempi": conformance("caffempi", "not out_of_memory", limit=150.0, beside="conformance"),
    # One at a time: each takes three quarters of the GPU's memory in advance.
    "conformance-jax": conformance(
        "jax",
        "number_format or profiler or card_tells or deterministic or layer",
        limit=150.0,
        at_once="0",
        beside="conformance",
    ),
    "shared-parameter-server": shared("caffempi", "parameter_server_async"),
    "shared-local-sgd": shared("pytorch", "local_sgd"),
    "eager": beside_a_loop("eager"),
    "graph": beside_a_loop("graph"),
    "profiler": Step(
        (
            *("tests/validation/stages_vs_profiler.py", "pytorch", "resnet50:256"),
            *("--device", "cuda", "--precision", "bfloat16"),
        )
    ),
    **precisions("alexnet", "default", "tf32", "bfloat16", "float16"),
    **precisions("googlenet", "default", "tf32", "bfloat16", "float16"),
    # cuDNN tries its algorithms for float32 half a minute and more.
    **precisions("alexnet", "not-autotuned", "float32", limit=75.0),
    **precisions("googlenet", "float32", limit=75.0),
    "compile": beside_a_loop("compile", limit=150.0),
    "decoded": stagebench(
        *("data", "check", "imagenet-like", "--readers", "--adapter", "pytorch", "--device", "cuda"),
        *("--knob", "decode=gpu"),
    )._replace(needs=("data",)),
    "decoding": from_files(*("--knob", "decode=host,gpu", "--passes", "native,staged,resident,io_only"), limit=120.0),
    "out-of-memory": conformance("pytorch,jax,caffempi", "out_of_memory", limit=150.0, at_once="0"),
    "copies": from_files("--knob", "copy_stream=on,off", "--passes", "native,resident", "--no-proofs"),
    **paper("pytorch", "resnet50"),
    **paper("pytorch", "googlenet"),
    **paper("caffempi", "googlenet"),
    **paper("pytorch", "alexnet", limit=90.0),
    **paper("caffempi", "alexnet", limit=90.0),
    **paper("jax", "resnet50", limit=150.0),
    **precisions("resnet50", "default", "tf32", "bfloat16", "float16", "graph"),
    **precisions("resnet50", "float32", limit=90.0),
    **{name: step for network in NETWORKS for name, step in precisions(network, "contiguous", limit=75.0).items()},
    "proof-caffempi-deterministic": proof("caffempi", "resnet50", "float32", "deterministic=on"),
    **{
        f"proof-jax-{name}": proof("jax", "googlenet", "float32", "preallocate=0", knob, limit=150.0)
        for name, knob in (("deterministic", "deterministic=on"), ("no-autotuning", "cudnn_autotune=off"))
    },
    "compiled-graph": beside_a_loop("compiled graph", limit=150.0),
    "autotuned": beside_a_loop("autotune", limit=300.0),
    **paper("caffempi", "resnet50"),
    **{f"paper-shared-{name}": row(name, "share_devices = true") for name in ("pytorch", "caffempi")},
    **paper("jax", "alexnet", limit=150.0),
    **paper("jax", "googlenet", limit=150.0),
    **{name: step for each in PAPER for name, step in paper(each, "resnet152", limit=180.0).items()},
    **{f"inference-{name}": inferring(name) for name in ("pytorch", "jax", "caffempi")},
    "autotune": stagebench("run", "autotune", "--scale", "gpu", "-o", "{out}/{step}", limit=1800.0),
}


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("out", type=Path, help="folder of the results")
    words.add_argument("--minutes", type=float, default=60.0, help="no step runs later than this")
    words.add_argument("--only", action="append", choices=STEPS, metavar="STEP", help="whether passed or not")
    words.add_argument("--list", action="store_true", help="print which steps are passed, and start none")
    words.add_argument("--rehearse", action="store_true", help="on CPUs; nothing is put on record")
    words.add_argument("--pack", type=Path, help="a .tar.gz of all results, written anew after every step")
    asked = words.parse_args()
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    if asked.list:
        for name in STEPS:
            print(f"{name}: {record.get(name, {}).get('ended', 'missing')}")
        return 0
    asked.out = asked.out.absolute()
    asked.out.mkdir(parents=True, exist_ok=True)
    machine = "CPUs" if asked.rehearse else card()
    end, results = time.monotonic() + 60.0 * asked.minutes, {}
    for name, result in ended(due(record, asked.out, asked.only), asked.out, end, asked.rehearse):
        results[name] = {"date": time.strftime("%Y-%m-%d"), **result, "machine": machine}
        print(f"{name}: {result['ended']} after {result['seconds']:.0f} s", flush=True)
        written = asked.out / "on_a_card.json" if asked.rehearse else RECORD
        written.write_text(json.dumps({**record, **results}, indent=1) + "\n")
        if asked.pack:
            pack(asked.out, written, asked.pack)
    return int(any(result["ended"] != 0 for result in results.values()))


def due(record: dict[str, dict[str, Any]], out: Path, only: list[str] | None) -> list[str]:
    """The steps to run: those that no card has passed, or these; before them, what they need and `out` lacks."""
    results = {name: record.get(name, {}).get("ended", TIME_UP) for name in STEPS}
    wanted = only or [name for name in STEPS if results[name] != 0]
    needed = {need for name in wanted for need in STEPS[name].needs if not (out / f"{need}.txt").exists()}
    # What failed on this machine waits for what has not had its time there.
    tried = [name for name in wanted if results[name] not in (0, TIME_UP) and (out / f"{name}.txt").exists()]
    return [name for name in STEPS if name in needed or (name in wanted and name not in tried)] + tried


def card() -> str:
    """The GPU, its driver and the versions of what drives it."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        named = subprocess.run(query, check=True, capture_output=True, text=True).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        raise SystemExit("nvidia-smi lists no GPU here; --rehearse runs the steps on CPUs") from None
    model, driver = named.split(", ")
    versions = [f"Python {sys.version.split()[0]}"]
    for package in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            versions.append(f"{package} {version(package)}")
    return f"{model}, driver {driver}, " + ", ".join(versions)


def ended(names: list[str], out: Path, end: float, rehearse: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each step's result, as soon as it has one: its exit code, or why it has none, and its seconds."""
    patience = PATIENCE if rehearse else 1.0
    for _, group in groupby(names, lambda name: STEPS[name].beside or name):
        waiting, running = list(group), {}
        while running or (waiting and time.monotonic() < end):
            if waiting and len(running) < AT_ONCE and time.monotonic() < end:
                running[waiting[0]] = start(waiting[0], out, rehearse), time.monotonic()
                waiting.pop(0)
            for name, (process, began) in list(running.items()):
                result, seconds = process.poll(), time.monotonic() - began
                if result is None and time.monotonic() > end:
                    result = TIME_UP
                elif result is None and seconds > patience * STEPS[name].limit:
                    result = f"stopped after {seconds:.0f} s"
                if result is not None:
                    stop(process)
                    del running[name]
                    yield name, {"ended": result, "seconds": round(seconds, 1)}
            time.sleep(0.05)


def start(name: str, out: Path, rehearse: bool) -> "subprocess.Popen[bytes]":
    step = STEPS[name]
    if step.keep:
        (out / f"{name}.toml").write_text(plan(step, rehearse))
    words = [word.replace("{out}", str(out)).replace("{step}", name) for word in step.command]
    if rehearse:
        words = [":".join(REHEARSAL.get(part, part) for part in word.split(":")) for word in words]
    with (out / f"{name}.txt").open("w") as stream:
        command = [sys.executable, *words]
        # A machine's own plugins of pytest may warn, which is an error: pytest-benchmark does beside xdist.
        environ = {**os.environ, "STAGEBENCH_ADAPTERS": step.adapters, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        return subprocess.Popen(command, cwd=ROOT, env=environ, stdout=stream, stderr=stream, start_new_session=True)


def plan(step: Step, rehearse: bool) -> str:
    """The plan `paper`, whose scale `card` keeps a step's rows alone."""
    head = "[scale.card.keep]\n"
    divide = 64 if rehearse else step.divide
    text = PLAN.read_text().replace(head, f"[scale.card]\ndivide_batch = {divide}\n\n{head}{step.keep}")
    return text.replace('"cuda"', '"cpu"') if rehearse else text


def stop(process: "subprocess.Popen[bytes]") -> None:
    """End a step with all that it has started, if it has not ended."""
    for by in (signal.SIGTERM, signal.SIGKILL) * (process.poll() is None):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, by)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)


def pack(out: Path, record: Path, archive: Path) -> None:
    """All results but the bundles, which are this tree's own code."""
    scratch = archive.with_suffix(".part")
    with tarfile.open(scratch, "w:gz") as stream:
        stream.add(record, record.name)
        stream.add(out, "results", filter=lambda info: None if "/bundles" in info.name else info)
    scratch.replace(archive)


if __name__ == "__main__":
    sys.exit(main())
