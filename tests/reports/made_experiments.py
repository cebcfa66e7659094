"""Runs like those of the plans that ship, small and simulated: one for each question that a page answers."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from stagebench.suite.contracts.case import Case, Placement
from stagebench.suite.results.run_folder import RunFolder
from stagebench.suite.worker.case_parts import Input, Sampling, Serving, Training
from stagebench.suite.worker.pass_kinds import LOADS
from tests.reports.made_run import MadeRun, case_of, declared
from tests.support.sent import hello_json, joined_json

PHOTOGRAPHS, DIGITS = "/data/imagenet-like", "/data/digits.npz"
BOTH = ("pytorch", "caffempi")


def inputs(path: Path) -> RunFolder:
    """Two adapters fed in three ways, one of them with more readers, and a reference without a proof."""
    run = MadeRun(path)
    for adapter in BOTH:
        run.proven(case_of(adapter, data="synthetic", passes=("native",), input=Input()))
        run.proven(case_of(adapter, passes=("native", "resident"), input=Input(mode="memory")))
        run.proven(case_of(adapter))
    run.proven(case_of("pytorch", readers=2))
    run.proven(case_of("caffempi", input=Input(format="lmdb")))
    run.add(case_of("reference", data="synthetic", passes=("native",)))
    run.add(case_of("reference"))
    return run.folder


def paper(path: Path) -> RunFolder:
    """Three networks, two frameworks, one node and several; rows without the vendors' kernels, and without a proof."""
    run = MadeRun(path, "paper")
    for (knob, device), (value, slower) in product(
        (("onednn", "cpu"), ("cudnn_autotune", "cuda")), (("on", 1.0), ("off", 2.0))
    ):
        place = Placement(device=device)
        case = case_of("pytorch", data="synthetic", passes=("native",), knobs={knob: value}, placement=place)
        run.proven(case, slower=slower)
    for workload in ("alexnet", "resnet50"):
        for adapter in BOTH:
            for nodes, ranks in ((1, 1), (1, 2), (1, 4), (2, 2), (4, 1), (4, 2)):
                case = case_of(adapter, workload, nodes * ranks)
                place = Placement(nodes=nodes, ranks_per_node=ranks, launcher="mpiexec")
                run.proven(case.on(placement=place), slower=1 + 0.08 * (nodes - 1))
    for adapter in BOTH:
        for ranks in (1, 2):
            run.proven(case_of(adapter, "googlenet", ranks))
        for strategy in ("multi_worker_mirrored", "dist_device_sync", "two_level"):
            run.add(case_of(adapter, "googlenet", 2, strategy=strategy))
    return run.folder


def epochs(path: Path) -> RunFolder:
    """Repeats, batches and devices, two epochs each."""
    run = MadeRun(path, "data-parallel")
    for repeat in (1, 4):
        for batch in (128, 256):
            for adapter in BOTH:
                for ranks in (1, 2):
                    case = learner(adapter, ranks, batch=batch, input=Input(repeat=repeat), training=Training(epochs=2))
                    run.proven(case, repeats=1, ranks=taught(case))
    return run.folder


def time_to_train(path: Path) -> RunFolder:
    """One machine, and two and four nodes of one rank."""
    run = MadeRun(path)
    for nodes in (1, 2, 4):
        case = learner("pytorch", 1, strategy="ddp" if nodes > 1 else "single", placement=Placement(nodes=nodes))
        case = case.on(training=Training(epochs=20, patience=5))
        ranks = taught(case.on(training=Training(epochs=4 + nodes)))
        run.proven(case, repeats=1, ranks=[{**rank, "connections": _ring(rank["rank"], nodes)} for rank in ranks])
    return run.folder


def _ring(rank: int, ranks: int) -> list[dict[str, str]]:
    """A rank's connections to the one before and the one after it, and to a server."""
    after, before = [f"10.0.0.{1 + (rank + step) % ranks}:80{step % ranks:02}" for step in (1, -1)]
    own = f"10.0.0.{1 + rank}"
    ends = [(f"{own}:80{ranks - 1:02}", after), (f"{own}:8001", before), (f"{own}:9000", "10.0.0.99:22")]
    return [{"own": one, "other": other} for one, other in ends] if ranks > 1 else []


def exchanges(path: Path) -> RunFolder:
    """One training by all-reduce, by a synchronous and by an asynchronous server, and the speed of two of them."""
    run = MadeRun(path)
    for strategy, faster, late in (("ddp", 1.0, None), ("dist_sync", 0.8, None), ("dist_async", 1.3, 1.4)):
        for seed in (1, 2):
            case = learner("pytorch", 2, strategy=strategy, seed=seed, training=Training(epochs=4))
            run.proven(case, repeats=1, ranks=taught(case, faster, late))
        speed = learner("pytorch", 2, strategy=strategy, passes=("native",), training=Training())
        run.proven(speed.on(sampling=Sampling(quick=True, processes=3)), slower=1 / faster)
    return run.folder


def parts(path: Path) -> RunFolder:
    """A network on each of two devices, and one on both."""
    run = MadeRun(path)
    for strategy, size, held in (("ddp", 1, (3, 3)), ("pipeline", 2, (1, 2))):
        case = run.proven(case_of("pytorch", "mnist_small", 2, strategy=strategy), slower=0.8 + 0.2 * size)
        declared = {"knob_defaults": {}, "synchronous": True, "separable": ["io"], "model_parallel_size": size}
        run.changed(case, lambda record, more=declared, held=held: _parted(record, {**more, "microbatches": 1}, held))
    return run.folder


def _parted(record: dict[str, Any], declared: dict[str, Any], held: tuple[int, ...]) -> None:
    record["declared"] = declared
    for rank, gibibytes in zip(record["ranks"], held, strict=True):
        rank["memory"] = {"host_bytes": gibibytes * 2**30}
        if declared["model_parallel_size"] > 1:
            rank["notes"]["exchanged_bytes"] = 5 * 2**20


WAITING, FREER = (1.0, 0.5, 0.25), (1.0, 0.9, 0.8)  # how fast, by the straggler's share


def stragglers(path: Path, freer: tuple[float, ...] = FREER, seeds: tuple[int, ...] = (1, 2, 3)) -> RunFolder:
    """All-reduce, which a straggler slows, and an asynchronous server, which it does not; over seeds."""
    run = MadeRun(path)
    for strategy, late, paces in (("ddp", None, WAITING), ("dist_async", 1.4, freer)):
        for straggler, pace in zip((0.0, 0.5, 0.75), paces, strict=True):
            for seed in seeds:
                case = learner("pytorch", 2, strategy=strategy, seed=seed, straggler=straggler)
                case = case.on(training=Training(epochs=4))
                ranks = taught(case, pace, late)
                if straggler:
                    ranks[-1]["notes"]["straggler"] = {"asked": straggler, "taken": straggler - 0.04}
                run.proven(case, repeats=1, ranks=ranks)
    return run.folder


def batches(path: Path, seeds: tuple[int, ...] = (1, 2, 3)) -> RunFolder:
    """Batch sizes over seeds, to a target that the largest one misses."""
    run = MadeRun(path)
    for adapter in BOTH:
        for batch in (8, 32, 128, 512):
            for seed in seeds:
                case = learner(adapter, 1, batch=batch, seed=seed, lr=0.01, training=Training(epochs=8, target=0.97))
                ranks = [{**one, "memory": {"host_bytes": batch << 20}} for one in taught(case)]
                run.proven(case, repeats=1, ranks=ranks)
    return run.folder


def autotune(path: Path) -> RunFolder:
    """Batches, threads and a knob on one network, tuning on another; the default configurations among them."""
    run = MadeRun(path, "autotune")
    for batch in (8, 16):
        for threads in (1, 2):
            for format_ in ("contiguous", "channels_last"):
                case = case_of("pytorch", batch=batch, tuning="default", knobs={"memory_format": format_})
                run.proven(
                    case.on(passes=("native",), placement=Placement(threads=threads)),
                    slower=batch / 8 / (1 + 0.2 * (format_ == "channels_last")) / threads**0.8,
                    declared=declared(memory_format="contiguous"),
                )
    for tuning in ("default", "tuned"):
        case = case_of("caffempi", tuning=tuning, passes=("native",), placement=Placement(launcher="mpiexec"))
        run.proven(case, slower=1.0)
    case = case_of("caffempi", batch=16, tuning="default", passes=("native",), placement=Placement(launcher="mpiexec"))
    run.add(case, slower=0.1)  # by far the quickest, and nothing proves it
    for tuning, slower in (("default", 1.5), ("tuned", 1.0)):
        case = case_of("pytorch", "resnet50", tuning=tuning, passes=("native",), knobs={"memory_format": "contiguous"})
        run.proven(case, slower=slower, declared=declared(memory_format="contiguous"))
    return run.folder


def inference(path: Path) -> RunFolder:
    """Two adapters under every load, with batches of one and of eight, in process and behind a model server."""
    run = MadeRun(path, "serving")
    settings = {"strategy": "inference", "passes": LOADS, "sampling": Sampling(steps=700, processes=3)}
    for adapter, batch in product(BOTH, (1, 8)):
        run.proven(case_of(adapter, batch=batch, **settings))
    run.proven(case_of("pytorch", batch=8, serving=Serving(model_server="mosec"), **settings))
    return run.folder


def learner(adapter: str, ranks: int, **changes: Any) -> Case:
    """A case that trains."""
    values = {"data": DIGITS, "passes": ("train",), "lr": 0.01, "sampling": Sampling(quick=True, processes=1)}
    return case_of(adapter, "mnist_small", ranks, **{**values, **changes})


def taught(case: Case, faster: float = 1.0, late: float | None = None) -> list[dict[str, Any]]:
    """The ranks of a training: losses fall with the steps, noisily; a late one falls more slowly and says how stale."""
    world, random = case.placement.ranks, np.random.default_rng(case.seed + case.batch)
    samples = 1438 * case.input.repeat
    steps = max(1, round(samples / case.global_batch))
    second = samples / (3000.0 * faster * world**0.8 * case.batch / (case.batch + 16))
    seconds = [second * 1.4, *[second] * (case.training.epochs - 1)]
    every = np.arange(steps * case.training.epochs)
    learnt = (every + 1) * (case.global_batch / (case.global_batch + 200)) / (late or 1.0)
    right = 1 - 0.9 * np.exp(-learnt[steps - 1 :: steps] / 5) - random.uniform(0.005, 0.02)
    ends = np.concatenate([np.linspace(0, length, steps + 1)[1:] for length in seconds])
    begins = np.repeat(np.cumsum([0, *seconds[:-1]]), steps)
    found = []
    for rank in range(world):
        losses = 2.3 * np.exp(-learnt / 12) + 0.1 + random.normal(0, 0.08, every.size)
        found.append(
            {
                "rank": rank,
                "hello": hello_json(rank=rank, world=world, host="bench", cores=[0]),
                "joined": joined_json(rank=rank, world=world, transport="gloo", versions={"torch": "2.13.0"}),
                "passes": {},
                "layers": None,
                "training": {
                    "epochs": [
                        {
                            "train_s": length,
                            "test_s": 0.0,
                            "samples": steps * case.batch * case.placement.devices,
                            "steps": steps,
                            "accuracy": float(share),
                            "loss": 0.2,
                        }
                        for length, share in zip(seconds, right, strict=True)
                    ],
                    "loss_steps": every.tolist(),
                    "losses": losses.tolist(),
                    "loss_s": (begins + ends).tolist(),
                    "open_s": 0.375,
                },
                "notes": {"staleness": {"mean": late, "max": 3, "steps": int(every.size)}} if late else {},
            }
        )
    return found
