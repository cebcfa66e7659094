"""What an adapter cannot do it refuses before anything starts, by its declaration or in its own words."""

from typing import Any

from stagebench_conformance import Declared

from suite.case import Placement
from suite.plugins import adapters

MPI = Placement(launcher="mpiexec")

# Each adapter's own refusals, beyond its declaration: (what is asked, what it answers).
OWN: dict[str, list[tuple[dict[str, Any], str]]] = {
    "cntk": [
        ({"strategy": "single", "knobs": {"block_steps": 5}}, "belongs to the strategy 'block_momentum'"),
        (
            {"strategy": "block_momentum", "placement": MPI, "knobs": {"block_steps": 0}},
            "a block holds at least 1 step",
        ),
    ],
    "mxnet": [
        ({"knobs": {"servers": 2}}, "belongs to the dist_ strategies"),
        ({"strategy": "dist_sync", "knobs": {"servers": 0}}, "there is at least 1"),
        ({"precision": "float64", "knobs": {"lrn": "native"}}, "computes in float32"),
    ],
    "pytorch": [
        ({"strategy": "single", "knobs": {"static_graph": True}}, "belongs to the strategy 'ddp'"),
        ({"strategy": "dp"}, "it would run the whole batch on one, unsplit and without a word"),
        (
            {"strategy": "dp", "placement": Placement(device="cuda", devices=2), "knobs": {"compile": True}},
            "which a compiled one does not allow",
        ),
        ({"strategy": "ddp", "knobs": {"bucket_cap_mb": 0}}, "a bucket holds at least 1 MiB"),
    ],
    "tensorflow": [
        ({"knobs": {"pack_mb": 4}}, "belongs to the strategy 'multiworker_mirrored'"),
        ({"strategy": "multiworker_mirrored", "knobs": {"pack_mb": 0}}, "a pack holds at least 1 MiB"),
        ({"knobs": {"layout": "NCHW"}}, "NCHW on a CPU needs xla = 'step'"),
    ],
    "reference": [({"batch": 3, "knobs": {"shards": 2}}, "a batch of 3 does not divide into shards = 2")],
}

for _name in sorted(adapters()):
    globals()[f"Test_{_name}"] = type(f"Test_{_name}", (Declared,), {"adapter": _name, "refusals": OWN.get(_name, [])})


def test_every_refusal_here_is_an_adapter_s():
    assert set(OWN) <= set(adapters())
