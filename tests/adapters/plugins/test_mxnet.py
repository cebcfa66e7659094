"""What the plugin declares, without MXNet."""

import sys
from pathlib import Path

import pytest

from adapters.mxnet import plugin
from suite.contracts import knobs
from suite.contracts.case import Case, Placement
from tests.support.refusals import refusal

PYTHON = Path(sys.executable)
ADAPTER = plugin.MXNet()


def whole(asked):
    return knobs.values(plugin.KNOBS, asked)


DIST = Case("mxnet", "dist_sync", "mnist_small", Placement(nodes=2, ranks_per_node=2), knobs=whole({}))


def test_a_distributed_store_has_a_scheduler_and_a_server_a_node():
    script = "adapters/mxnet/server.py"
    assert ADAPTER.sidecars(DIST) == ((script, "scheduler"), (script, "server"), (script, "server"))
    assert ADAPTER.sidecars(DIST.on(knobs=whole({"servers": 1}))) == ((script, "scheduler"), (script, "server"))
    assert ADAPTER.sidecars(DIST.on(strategy="kvstore_local")) == ()
    assert (Path(plugin.__file__).parents[2] / script).is_file()


def test_every_process_has_the_numbers_of_workers_and_servers():
    counts = {"DMLC_NUM_WORKER": "4", "DMLC_NUM_SERVER": "2"}
    assert ADAPTER.environ(DIST, PYTHON) == {**counts, "STAGEBENCH_MXNET_NODES": "2"}
    one_host = DIST.on(placement=Placement(ranks_per_node=4), knobs=whole({"servers": 2}))
    assert ADAPTER.environ(one_host, PYTHON) == counts
    assert ADAPTER.environ(DIST.on(strategy="single"), PYTHON) == {}


@pytest.fixture
def for_gpus(tmp_path):
    """The Python of an environment with NVIDIA's wheels, and with MXNet's for GPUs when asked."""
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    for name in ("cudnn", "cublas"):
        (site / "nvidia" / name / "lib").mkdir(parents=True)

    def make(mxnet):
        (site / f"{mxnet}-1.9.1.dist-info").mkdir()
        return tmp_path / "bin" / "python", site / "nvidia"

    return make


def test_nvidia_s_libraries_are_found_where_their_wheels_are(monkeypatch, for_gpus):
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/own")
    python, nvidia = for_gpus("mxnet_cu112")
    found = ADAPTER.environ(DIST.on(strategy="single"), python)["LD_LIBRARY_PATH"].split(":")
    assert found == [str(nvidia / name / "lib") for name in ("cublas", "cudnn")] + ["/opt/own"]


@pytest.mark.parametrize(
    ("mxnet", "driver", "said"), [("mxnet_cu112", False, True), ("mxnet_cu112", True, False), ("mxnet", False, False)]
)
def test_the_wheel_for_gpus_alone_wants_the_driver(monkeypatch, for_gpus, mxnet, driver, said):
    monkeypatch.setattr(plugin, "LIBRARIES", {})
    monkeypatch.setattr(plugin, "has_driver", lambda: driver)
    python, _ = for_gpus(mxnet)
    assert ("loads libcuda.so.1 of NVIDIA's driver" in str(ADAPTER.missing(python))) is said
    assert ("LD_LIBRARY_PATH" in ADAPTER.environ(DIST.on(strategy="single"), python)) is (mxnet != "mxnet")


def test_servers_that_prove_identity_start_from_zeroed_memory():
    assert ADAPTER.environ(DIST.on(precision="float64"), PYTHON)["MALLOC_PERTURB_"] == "255"


def test_only_tuned_cpu_processes_get_allocator_settings():
    alone = DIST.on(strategy="single", tuning="tuned")
    tuned = ADAPTER.environ(alone, PYTHON)
    assert (tuned["MALLOC_TRIM_THRESHOLD_"], tuned["MALLOC_ARENA_MAX"]) == (str(32 << 30), "1")
    on_gpu = alone.on(placement=Placement(device="cuda"))
    assert ADAPTER.environ(on_gpu, PYTHON) == {"NVIDIA_TF32_OVERRIDE": "0"}, "float32 is not TF32"
    assert ADAPTER.environ(on_gpu.on(precision="float64"), PYTHON) == {}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"strategy": "single", "knobs": {"servers": 2}}, "changes nothing under 'single'"),
        ({"knobs": {"servers": 0}}, "servers is 0, and the least is 1"),
        ({"knobs": {"lrn": "native"}, "precision": "float64"}, "lrn = 'native' needs precision = 'float32'"),
        ({"knobs": {"lrn": "native", "servers": 2}}, None),
        ({"strategy": "kvstore_local", "knobs": {"compression": "2bit"}}, "changes nothing under 'kvstore_local'"),
        ({"strategy": "single", "knobs": {"compression": "2bit"}}, "changes nothing under 'single'"),
        (
            {"knobs": {"compression": "2bit"}, "precision": "float64"},
            "'2bit' needs precision = 'float32'",
        ),
        ({"knobs": {"compression": "2bit", "threshold": 0}}, "threshold is 0, and must be above 0"),
        ({"knobs": {"threshold": 0.1}}, "threshold = 0.1 needs compression = '2bit'"),
        ({"strategy": "kvstore_device", "knobs": {"compression": "2bit", "threshold": 0.1}}, None),
        ({"strategy": "dist_async", "knobs": {"compression": "2bit", "servers": 2}}, None),
    ],
)
def test_knobs_that_mean_nothing_are_refused(changes, words):
    case = DIST.on(**{**changes, "knobs": whole(changes.get("knobs"))})
    distributed = ADAPTER.strategy(case).distributed
    found = refusal(ADAPTER, case if distributed else case.on(placement=Placement()))
    assert found is None if words is None else words in found


def test_compressed_gradients_are_not_exact():
    assert ADAPTER.synchronous(DIST)
    assert not ADAPTER.synchronous(DIST.on(knobs=whole({"compression": "2bit"})))
    assert not ADAPTER.synchronous(DIST.on(strategy="dist_async"))


def test_only_dist_device_sync_spreads_over_ranks_and_devices():
    found = {each.name for each in ADAPTER.capabilities.strategies if each.distributed and each.several_devices}
    assert found == {"dist_device_sync"}


def test_the_remedy_names_the_python_that_is_needed():
    assert "python3.11 on PATH" in ADAPTER.remedy


def test_libraries_that_the_wheel_leaves_to_the_system_are_named_with_their_packages(monkeypatch):
    monkeypatch.setattr(plugin, "find_library", lambda name: None if name == "quadmath" else "lib.so")
    assert ADAPTER.missing(PYTHON).endswith("apt-get install libquadmath0")
    monkeypatch.setattr(plugin, "find_library", lambda name: "lib.so")
    assert ADAPTER.missing(PYTHON) is None


def test_kernels_are_left_as_they_come_unless_a_plan_asks():
    gpu = DIST.on(strategy="single", placement=Placement(device="cuda"), precision="float64")
    assert ADAPTER.environ(gpu.on(knobs=whole({"cudnn_autotune": "on"})), PYTHON) == {
        "MXNET_CUDNN_AUTOTUNE_DEFAULT": "1"
    }
    alike = ADAPTER.environ(gpu.on(knobs=whole({"deterministic": "on"})), PYTHON)
    assert alike == {"MXNET_ENFORCE_DETERMINISM": "1", "MXNET_CUDNN_AUTOTUNE_DEFAULT": "0"}
    without = DIST.on(strategy="single", knobs=whole({"onednn": "off"}))
    assert ADAPTER.environ(without, PYTHON) == {"MXNET_MKLDNN_ENABLED": "0"}
    assert "needs device = 'cpu'" in refusal(ADAPTER, gpu.on(knobs=whole({"onednn": "off"}), precision="float32"))
