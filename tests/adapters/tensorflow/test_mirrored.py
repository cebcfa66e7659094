"""Two real devices: of one process under MirroredStrategy, of two processes under MultiWorkerMirroredStrategy."""

from pathlib import Path

import numpy as np
import pytest

from stagebench.suite.worker.contract import SGD, Adam
from stagebench.workloads.networks import by_name
from tests.support import processes, proofs

WORKLOAD = by_name()["mnist_small"]
PLAIN, ADAM = SGD(0.001, 0.9, 0.0), Adam(1e-3, 0.9, 0.999, 1e-7, 1e-4)
MEMORY, COPIES = "memory: reduction to one device", "memory: hierarchical copies"
GROUPS = {  # ranks, the rule, options, the transport that is expected
    "keras-adam": (1, ADAM, {"strategy": "keras_fit", "tuning": "default"}, MEMORY),
    "keras-adamw": (
        1,
        ADAM._replace(weight_decay=0.05, decoupled=True),
        {"strategy": "keras_fit", "tuning": "default"},
        MEMORY,
    ),
    "mirrored-hierarchical": (1, PLAIN, {"strategy": "mirrored", "cross_device": "hierarchical"}, COPIES),
    "multiworker": (
        2,
        ADAM,
        {"strategy": "multiworker_mirrored", "pack_mb": 1, "collective": "ring"},
        "ring over grpc",
    ),
}


@pytest.fixture(scope="module", params=GROUPS)
def group(request, tmp_path_factory):
    """(folder, what each rank found, the transport that is expected) of one group of each kind."""
    world, rule, options, transport = GROUPS[request.param]
    folder = tmp_path_factory.mktemp("group")
    proofs.write_oracle(WORKLOAD.graph(), 2 * WORKLOAD.proof_batch, folder / "oracle", rule)
    options = {"tuning": "tuned", **options, "optimiser": rule, "devices": 2 // world}
    program = Path(__file__).with_name("mirrored_rank.py")
    tokens = processes.rank_tokens(program, "prove_and_exchange", folder, **options)
    processes.run_together(processes.ranks(tokens, world, processes.variables(TF_CPP_MIN_LOG_LEVEL="1")))
    return folder, processes.found_by(folder, world), transport


def test_it_is_proven(group):
    _, found, transport = group
    world = len(found)
    for rank, proof in enumerate(found):
        assert proof["joined"] == [rank, world, 2 // world, transport]
        assert proof["maximum"] == world - 1
        assert proof["placed"] == [f"CPU:{index}" for index in range(2 // world)] * 2
        assert proof["devices"] == [[f"CPU:{index}"] for index in range(2 // world)]
    proofs.assert_proven(WORKLOAD.graph(), *found)


def test_the_exchange_averages_and_a_lone_step_does_not(group):
    def saved(name):
        return [np.load(group[0] / f"{name}-{device}.npz") for device in range(2)]

    proofs.assert_exchanged(saved, atol=1e-7)


def test_keras_trains_on_the_same_batches_from_its_distributed_data_set(tmp_path):
    ends = []
    for strategy in ("mirrored", "keras_fit"):
        folder = tmp_path / strategy
        folder.mkdir()
        options = {"strategy": strategy, "devices": 2, "batch": 8, "readers": 1}
        program = Path(__file__).with_name("mirrored_rank.py")
        tokens = processes.rank_tokens(program, "read_and_train", folder, **options)
        processes.run_together(processes.ranks(tokens, 1, processes.variables(TF_CPP_MIN_LOG_LEVEL="1")))
        (found,), (trained,) = processes.found_by(folder, 1), processes.saved_by(folder, "trained", 1)
        ends.append((found, trained))
    (ours, weights), (theirs, others) = ends
    assert theirs["notes"]["loop"] == "Keras's model.fit"
    assert (ours["distributed"], theirs["distributed"]) == (0, 1)
    np.testing.assert_allclose(theirs["losses"], ours["losses"], rtol=1e-6)
    np.testing.assert_allclose(theirs["logits"], ours["logits"], atol=1e-6)
    for name, each in weights.items():
        np.testing.assert_allclose(others[name], each, atol=1e-7, err_msg=name)
