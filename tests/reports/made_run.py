"""Writes run folders with the real schema, from simulated times: what the tests and a look at the page need."""

import json
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from stagebench.suite.analysis.rows import Row
from stagebench.suite.analysis.summary import summarise
from stagebench.suite.contracts.case import Case, Placement
from stagebench.suite.contracts.model_server import INPROCESS
from stagebench.suite.results.records import About, Host
from stagebench.suite.results.run_folder import RunFolder
from stagebench.suite.results.stored import FORMAT, sealed
from stagebench.suite.worker.case_parts import Sampling
from stagebench.suite.worker.messages import PARTS_BEHIND, PARTS_INSIDE, InFlight, Machine, ServerUse
from stagebench.suite.worker.pass_kinds import SERVER
from stagebench.suite.worker.typed_json import to_json
from tests.support.sent import hello_json, joined_json

NETWORKS = {
    # ms per iteration of io, h2d, forward, backward, communication, update
    "alexnet": (9.0, 1.0, 120.0, 250.0, 90.0, 45.0),
    "googlenet": (4.0, 0.5, 150.0, 310.0, 30.0, 14.0),
    "resnet50": (4.0, 0.5, 370.0, 760.0, 60.0, 28.0),
    "mnist_small": (0.1, 0.02, 4.0, 7.0, 1.5, 0.6),
    "gpt_char": (0.1, 0.02, 4.0, 7.0, 1.5, 0.6),
    "vit_ti16": (4.0, 0.5, 120.0, 240.0, 15.0, 7.0),
    "mnist_large": (0.1, 0.02, 40.0, 80.0, 7.0, 6.0),
    "mnist_stated": (0.1, 0.02, 20.0, 40.0, 5.0, 4.0),
}
FC6 = 37_752_832  # parameters
SPEED = {"pytorch": 1.0, "caffempi": 1.06, "reference": 8.0}


def case_of(adapter: str = "pytorch", workload: str = "alexnet", ranks: int = 1, **changes: Any) -> Case:
    """A case as a resolved plan has it."""
    strategy = "single" if ranks == 1 else "ddp" if adapter == "pytorch" else "data_parallel"
    values: dict[str, Any] = {
        "strategy": strategy,
        "batch": 8,
        "data": "/data/imagenet-like",
        "tuning": "tuned",
        "sampling": Sampling(quick=True, steps=20, seconds=2.0, processes=3),
        "knobs": {"memory_format": "channels_last"} if adapter == "pytorch" else {"overlap": "merged"},
        "placement": Placement(ranks_per_node=ranks, launcher="local" if adapter == "pytorch" else "mpiexec"),
        "lr": 0.01 * ranks,
        "graph_digest": "d" * 64,
    }
    return Case(adapter, workload=workload, **{**values, **changes})


def declared(**knob_defaults: Any) -> dict[str, Any]:
    """What an adapter with these knobs declares of a case on one device."""
    plain = {"synchronous": True, "separable": [], "model_parallel_size": 1, "microbatches": 1}
    return {**plain, "knob_defaults": knob_defaults}


def passes_of(case: Case, repeat: int, rank: int, slower: float = 1.0) -> dict[str, Any]:
    """Simulated passes of one rank: processes differ by 1 %, steps by 4 %, some steps are hiccups."""
    ranks = case.placement.ranks
    label = f"{case.adapter}{case.workload}{ranks}{repeat}"
    shared, own = np.random.default_rng(list(label.encode())), np.random.default_rng([*label.encode(), rank])
    factor = SPEED.get(case.adapter, 1.0) * slower * np.exp(shared.normal(0, 0.01)) / 1000
    io, h2d, forward, backward, communication, update = (ms * factor for ms in NETWORKS[case.workload])
    communication *= ranks > 1
    io *= 0.0 if case.data == "synthetic" else {"memory": 0.05, "disk": 1.0}[case.input.mode] / max(1, case.readers)
    steps = max(case.sampling.steps, 40)

    def noisy(mean: float) -> np.ndarray:
        values = mean * np.exp(own.normal(0, 0.04, steps))
        values[own.integers(0, steps)] *= 1.7
        return values

    def whole(mean: float, **more: Any) -> dict[str, Any]:
        seconds = noisy(mean)
        return {
            "warmup_s": noisy(mean)[:10].tolist(),
            "steady": True,
            "step_s": seconds.tolist(),
            "wall_s": float(seconds.sum()) + 1e-5,
            "samples": steps * case.batch * case.placement.devices,
            **more,
        }

    if case.infers:
        loads = {
            "offline": (forward, case.batch * case.placement.devices),
            "single_stream": (0.3 * forward, 1),
            "multi_stream": (forward, 8),
        }
        return {name: {"name": name, **whole(seconds, samples=steps * each)} for name, (seconds, each) in loads.items()}
    compute = io + h2d + forward + backward + update
    stages = {"io": io, "h2d": h2d, "forward": forward, "backward": backward, "communication": communication}
    stage_s = {name: noisy(seconds).tolist() for name, seconds in {**stages, "update": update}.items()}
    skew = 0.004 * ranks * (ranks > 1)
    stage_s["skew"] = noisy(skew).tolist()
    sent = 4 * 60_965_224 // 2 if ranks > 1 else None  # compressed, unlike what the proof would say
    found = {
        "native": whole(
            compute * 0.97 + communication * 0.45, io_s=noisy(io).tolist(), loss=2.3 - 0.1 * repeat, gradient_bytes=sent
        ),
        "staged": whole(compute + communication + skew, stage_s=stage_s, loss=2.1),
        "io_only": whole(io * 0.8),
    }
    native, resident = compute * 0.97 + communication * 0.45, (compute - io - h2d) * 0.97 + communication * 0.45

    def turns(one: float, other: float) -> list[tuple[float, float]]:
        drift = noisy(1.0)[:8]  # of a whole block: it hits both sides
        return list(zip((one * drift).tolist(), (other * drift).tolist(), strict=True))

    if ranks > 1:
        alone = (compute - io - h2d) * 0.97
        rounds = turns(resident, alone)
        exchange = communication * 0.95
        found["compute_only"] = whole(alone, loss=2.2, pairs_s=rounds)
        found["comm_only"] = whole(exchange, pairs_s=[(native, exchange * native / resident) for native, _ in rounds])
    if case.data == "synthetic":
        del found["io_only"]
    else:
        found["resident"] = whole(resident, loss=2.0, pairs_s=turns(native, resident))
    return {name: {**one, "name": name} for name, one in found.items() if name in case.passes}


def layers_of(case: Case) -> list[dict[str, Any]] | None:
    """What an adapter that times layers reports."""
    if case.adapter != "caffempi":
        return None
    return [
        {
            "layer": name,
            "kind": kind,
            "forward_s": 0.004 * scale,
            "backward_s": 0.009 * scale,
            "communication_s": 0.002 * scale * (case.placement.ranks > 1),
            "bytes": size,
        }
        for name, kind, scale, size in (
            ("conv1", "conv", 3, 139_776),
            ("relu1", "relu", 0.1, 0),
            ("fc6", "dense", 5, 4 * FC6),
        )
    ]


def kernels_of(adapter: str, others: str = "") -> dict[str, Any] | None:
    """What an adapter reports whose framework has a profiler of its kernels; words of `others` in a name."""
    if adapter != "pytorch":
        return None
    rows = [
        {"stage": stage, "name": name, "kind": kind, "calls": calls, "seconds": seconds}
        for stage, name, kind, calls, seconds in (
            ("backward", "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128>(Params)", "kernel", 2, 0.04),
            ("forward", f"relu{others}", "kernel", 7, 0.01),
            *(("update", f"sgd_{number}", "kernel", 1.5, 0.001) for number in range(10)),
        )
    ]
    stages = {"h2d": 0.0, "forward": 0.01, "backward": 0.04, "communication": 0.0, "update": 0.01}
    return {"stages": stages, "rows": rows, "profiler": "torch.profiler 2.13.0 (CUPTI)", "trace": "kernels-0.json.gz"}


def proof_of(case: Case, passed: bool = True) -> dict[str, Any]:
    """A proof as stagebench.suite.proofs.make writes it."""
    worst = {"what": "gradient", "tensor": "conv1.weight", "error": 3.1e-6 if passed else 4e-2, "tolerance": 1e-5}
    return {
        "format": FORMAT,
        "key": f"{case.id}aaaa",
        "adapter": case.adapter,
        "strategy": case.strategy,
        "processors": ["AMD EPYC 7B13"],
        "workload": case.workload,
        "ranks": case.placement.ranks,
        "device": "cpu",
        "precision": case.precision,
        "tuning": case.tuning,
        "knobs": case.knobs,
        "passed": passed,
        "reason": "" if passed else "gradient of conv1.weight is off by 0.04 (allowed 1e-05)",
        "worst": worst,
        "losses": {"staged": [6.9, 6.8, 6.7], "native": [6.9, 6.8, 6.7], "oracle": [6.9, 6.8, 6.7]},
        "errors": {"gradient": {"conv1.weight": worst["error"]}},
        "parameter_count": 60_965_224,
        "macs": 714_188_480,
        "graph": case.graph_digest,
        "versions": {"torch": "2.13.0"},
    }


class MadeRun:
    """A run folder in the making."""

    def __init__(self, path: Path, plan: str = "quick", options: tuple[str, ...] = ()) -> None:
        """Write run.json, the plan and a host; `options` are further words of the command."""
        self.folder, self._cases = RunFolder(path), []
        command = ("stagebench", "run", "quick", "-o", "results/quick", *options)
        self.folder.create(About(stagebench="0.1.0", created="2026-11-20T10:00:00+00:00", plan=plan, command=command))
        (path / "plan.toml").write_text(f'name = "{plan}"\ntitle = "Two trainers, real images"\n')
        what: dict[str, Any] = {"cpu": "AMD EPYC 7B13", "memory_bytes": 8 * 2**30, "kernel": "6.1", "sockets": 1}
        what |= {"gpus": ["GPU 0: NVIDIA H100 (UUID: GPU-1)"], "gpu_links": ["8.0 GT/s PCIe x16"]}
        what |= {"networks": ["eth0, 10000 Mbit/s"]}
        self.folder.write_host(
            Host(host="bench", cores=2, machine=Machine(**what, os="Debian GNU/Linux 12"), python="3.11.7")
        )

    def write(self, name: str, content: Any) -> None:
        """One file of the folder, whatever it holds; a record is sealed as this run's, and a proof."""
        text = json.dumps(content)
        if name.startswith("records/"):
            own = self.folder._identity
            text = sealed(json.dumps({**content, "digest": "", "run": own.run, "plan": own.plan}))
        elif name == "cases.json":
            text = sealed(json.dumps({"digest": "", "plan": self.folder.plan_digest, **content}))
        elif name.startswith("proofs/"):
            text = sealed(json.dumps({**content, "digest": ""}))
        (self.folder.path / name).write_text(text)

    def changed(
        self, case: Case, change: Callable[[dict[str, Any]], object], repeats: Iterable[int] = range(3)
    ) -> None:
        """Rewrite records of a case, as JSON."""
        for repeat in repeats:
            name = f"records/{case.id}-r{repeat}.json"
            record = json.loads((self.folder.path / name).read_text())
            change(record)
            self.write(name, record)

    def only(self) -> Row:
        """The row of its one case."""
        (row,) = summarise(self.folder)
        return row

    def add(self, case: Case, *, repeats: int = 3, proof: dict[str, Any] | None = None, **changes: Any) -> Case:
        """A case with its records; `changes` go into every record, `slower` into its times."""
        self.refuse(case, None, "")
        if proof is not None:
            self.write(f"proofs/{proof['key']}.json", proof)
        for repeat in range(repeats):
            self.write(f"records/{case.id}-r{repeat}.json", record_of(case, repeat, proof, **changes))
        return case

    def proven(self, case: Case, **changes: Any) -> Case:
        """A case with records and a proof that passed."""
        return self.add(case, proof=proof_of(case), **changes)

    def refuse(self, case: Case, outcome: str | None, reason: str) -> None:
        """A case without records: unsupported, unavailable, or (None) not reached."""
        self._cases.append({"id": case.id, "case": case.to_dict(), "outcome": outcome, "reason": reason})
        self.write("cases.json", {"format": FORMAT, "cases": self._cases})


def tries_of(case: Case, repeat: int) -> dict[str, Any]:
    """The load `server` of a rank: two rates, each tried twice; behind a model server, if the case names one."""
    if SERVER not in case.passes:
        return {}
    behind, draw, found = case.serving.model_server != INPROCESS, np.random.default_rng(repeat), []
    for rate in (100.0, 200.0, 200.0, 100.0):
        waits = draw.exponential(rate / 20_000, 400) + 0.001
        parts = {**dict.fromkeys(PARTS_BEHIND if behind else PARTS_INSIDE, 0.0), "forward": 0.001}
        parts |= {"hop": 1e-5, "back": 2e-5} if behind else {}
        parts["server" if behind else "queue"] = float(waits.mean()) - sum(parts.values())
        each = {"rate": rate, "scheduled": 400, "latency_s": waits.tolist(), "batches": [1] * 400, "stage_s": parts}
        each |= {"batch_s": [0.001] * 400, "wall_s": 400 / rate, "compared": 400, "lag_s": [1e-5] * 400 * behind}
        found.append(each)
    closed = [InFlight(1, 500.0, 0.002), InFlight(2, 900.0, 0.0022)]
    use = ServerUse(case.serving.model_server, "1.0", closed, 1.5, 0.0, False, 0.001, 0.0001, 3, 200 << 20, 0.25)
    return {"tries": found, **({"model_server": to_json(use)} if behind else {})}


def record_of(
    case: Case, repeat: int, proof: dict[str, Any] | None = None, slower: float = 1.0, **changes: Any
) -> dict[str, Any]:
    """One record."""
    world = case.placement.ranks
    joined = {"devices": case.placement.devices, "transport": "gloo", "versions": {"torch": "2.13.0"}}
    ranks = [
        {
            "rank": rank,
            "hello": hello_json(rank=rank, world=world, host="bench", cores=[0, 1]),
            "joined": joined_json(rank=rank, world=world, load_s=2.5 + 0.5 * (rank % 2), **joined),
            "built": {"seconds": 0.75 - 0.25 * (rank % 2)},
            "passes": passes_of(case, repeat, rank, slower),
            "layers": layers_of(case),
            **tries_of(case, repeat),
            "notes": {"data": "imagenet-like (200 images, 10 classes)", "ddp": {"static_graph": False}},
        }
        for rank in range(world)
    ]
    return {
        "format": FORMAT,
        "case_id": case.id,
        "case": case.to_dict(),
        "repeat": repeat,
        "outcome": "ok",
        "reason": "",
        "started": "2026-11-20T10:01:00+00:00",
        "seconds": 1e4,
        "interpreter": {"path": "/envs/pytorch/bin/python", "origin": "tox environment", "version": "3.11.7"},
        "bundle": {"pytorch": "b" * 64, "caffempi": "c" * 64}.get(case.adapter, "e" * 64),
        "proof": proof["key"] if proof else None,
        "proof_reason": "" if proof else "proofs were switched off for this run",
        "load": {"before": [0.5, 0.4, 0.3], "after": [1.9, 0.8, 0.4]},
        "ranks": ranks,
        "evidence": None,
        **changes,
    }


def learner_of(off: float, slower: float = 1.0) -> dict[str, Any]:
    """The one rank of a case that trains: two epochs; its losses are `off` those of another one."""
    epochs = [
        {"train_s": 2.0 * slower, "test_s": 0.0, "samples": 1000, "steps": 125, "accuracy": 0.9, "loss": 0.4},
        {"train_s": 1.0 * slower, "test_s": 0.0, "samples": 1000, "steps": 125, "accuracy": 0.985, "loss": 0.2},
    ]
    steps = list(range(20))
    losses = [2.0 / (step + 1) + off for step in steps]
    return {
        "rank": 0,
        "hello": hello_json(host="bench", cores=[0]),
        "joined": joined_json(versions={"torch": "2.13.0"}),
        "passes": {},
        "layers": None,
        "training": {"epochs": epochs, "loss_steps": steps, "losses": losses, "loss_s": []},
        "notes": {"tested": "digits.npz, 359 samples to test with"},
    }


def everything(path: Path, others: str = "") -> RunFolder:
    """A run with one of everything that a page must show.

    Words of `others` in reasons, a log, the names of a layer, a host and a data set, and in a knob.
    """

    def called(record: dict[str, Any]) -> None:
        for layers in (rank["layers"] for rank in record["ranks"] if rank["layers"]):
            layers[0]["layer"] += others
        for rank in record["ranks"]:
            rank["hello"]["host"] += others
            rank["kernels"] = kernels_of(record["case"]["adapter"], others)

    run = MadeRun(path, "paper")
    for workload, adapter, ranks in product(("alexnet", "resnet50"), ("pytorch", "caffempi"), (1, 2, 4)):
        run.changed(run.proven(case_of(adapter, workload, ranks)), called)
    run.add(case_of("reference", "mnist_small", data="/data/digits.npz"))
    knobs = {"memory_format": f"contiguous{others}"}
    wrong = case_of("pytorch", "mnist_small", data=f"/data/digits.npz{others}", knobs=knobs)
    run.add(wrong, proof=proof_of(wrong, passed=False))
    run.proven(case_of("pytorch", "mnist_small", data="/data/digits.npz"), repeats=1)
    killed = case_of("caffempi", "mnist_small", data="/data/digits.npz")
    why = f"rank 0 ended with signal 9 in the native pass{others}"
    logs = {"logs": {"rank-0.log": ["step 12", f"Killed{others}"]}}
    run.add(killed, repeats=1, outcome="crash", reason=why, ranks=[], evidence=logs)
    for adapter, off in (("pytorch", 0.0), ("caffempi", 2e-7)):
        for seed in (1, 2):
            learner = case_of(adapter, "alexnet", data="/data/photographs", passes=("train",), seed=seed)
            run.proven(learner, ranks=[learner_of(off, slower=seed)])
    run.refuse(case_of("pytorch", "mnist_small", 2), "unsupported", f"ddp wants one process per device{others}")
    run.refuse(case_of("reference", "resnet50"), None, "")
    return run.folder
