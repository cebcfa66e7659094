"""What each adapter tells the controller of a case: variables, servers, whether it is exact, how it is cut."""

import sys
from pathlib import Path

import pytest

from stagebench.adapters.mxnet import plugin as mxnet
from stagebench.suite.plugins import adapters
from stagebench.suite.processes import bundle
from tests.adapters.plugins.test_refusals import case_of

PYTHON, ROOT = Path(sys.executable), Path(__file__).parents[3]
GPU = {"device": "cuda"}
TRIMMED = {"MALLOC_TRIM_THRESHOLD_": str(32 << 30)}
ONE_ARENA = {**TRIMMED, "MALLOC_ARENA_MAX": "1"}
CUBLAS = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
YIELD = {"OMPI_MCA_mpi_yield_when_idle": "1"}
COUNTS = {"DMLC_NUM_WORKER": "4", "DMLC_NUM_SERVER": "2"}
ZEROED = {**COUNTS, "MALLOC_PERTURB_": "255", "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}
HOROVOD = [name for name in adapters() if name.startswith("horovod-")]


def environ(adapter, strategy, **asked):
    return adapters()[adapter].environ(case_of(adapter, strategy, **asked), PYTHON)


@pytest.mark.parametrize(
    ("adapter", "strategy", "asked", "exactly"),
    [
        ("caffempi", "single", {}, YIELD),
        ("caffempi", "single", {"deterministic": "on", **GPU}, {**YIELD, **CUBLAS}),
        ("horovod-mxnet", "allreduce", {}, {}),
        ("jax", "pmap", {"devices": 2}, {}),
        ("mxnet", "single", {}, {}),
        ("mxnet", "dist_sync", {"nodes": 2}, {**COUNTS, "STAGEBENCH_MXNET_NODES": "2"}),
        ("mxnet", "dist_sync", {"ranks_per_node": 4, "servers": 2}, COUNTS),
        # Servers that prove identity start from zeroed memory.
        ("mxnet", "dist_sync", {"ranks_per_node": 4, "servers": 2, "precision": "float64"}, ZEROED),
        ("mxnet", "single", {"tuning": "tuned", **GPU}, {"NVIDIA_TF32_OVERRIDE": "0"}),  # float32 is not TF32
        ("mxnet", "single", {"tuning": "tuned", "precision": "float64", **GPU}, {}),
        (
            "mxnet",
            "single",
            {"cudnn_autotune": "on", "precision": "float64", **GPU},
            {"MXNET_CUDNN_AUTOTUNE_DEFAULT": "1"},
        ),
        (
            "mxnet",
            "single",
            {"deterministic": "on", "precision": "float64", **GPU},
            {"MXNET_ENFORCE_DETERMINISM": "1", "MXNET_CUDNN_AUTOTUNE_DEFAULT": "0"},
        ),
        ("mxnet", "single", {"onednn": "off"}, {"MXNET_MKLDNN_ENABLED": "0"}),
        ("pytorch", "ddp", {}, {}),
        ("pytorch", "ddp", {"tuning": "tuned", **GPU}, {}),
        ("pytorch", "single", {"deterministic": "on", **GPU}, CUBLAS),
    ],
)
def test_a_case_has_these_variables(adapter, strategy, asked, exactly):
    assert environ(adapter, strategy, **asked) == exactly


@pytest.mark.parametrize(
    ("adapter", "strategy", "settings"),
    [
        ("caffempi", "single", {"MALLOC_MMAP_MAX_": "0", **YIELD}),
        *((name, "single", TRIMMED) for name in ("pytorch", "tensorflow")),
        *((name, "single", ONE_ARENA) for name in ("jax", "mxnet")),
        *((name, "allreduce", TRIMMED) for name in HOROVOD),
    ],
)
def test_only_tuned_cpu_processes_get_allocator_settings(adapter, strategy, settings):
    assert settings.items() <= environ(adapter, strategy, tuning="tuned").items()
    plain = [environ(adapter, strategy)]
    plain += [environ(adapter, strategy, tuning="tuned", **GPU)] if adapter in ("jax", "pytorch", "tensorflow") else []
    assert not any(name.startswith("MALLOC_") for found in plain for name in found)


@pytest.mark.parametrize(
    ("device", "asked", "wanted"),
    [
        ("cpu", {}, {"TF_ENABLE_ONEDNN_OPTS": "1"}),
        ("cpu", {"onednn": "off"}, {"TF_ENABLE_ONEDNN_OPTS": "0"}),
        ("cuda", {"cudnn_autotune": "off"}, {"TF_CUDNN_USE_AUTOTUNE": "0"}),
    ],
)
def test_tensorflow_s_kernels_are_variables(device, asked, wanted):
    found = environ("tensorflow", "single", device=device, **asked)
    assert wanted.items() <= found.items()
    assert ("TF_CUDNN_USE_AUTOTUNE" in found) == ("cudnn_autotune" in asked)


@pytest.mark.parametrize(("share", "settings"), [(0, ("false", None)), (0.75, ("true", "0.75"))])
def test_how_much_of_a_gpu_xla_takes_is_a_knob(share, settings):
    found = environ("jax", "single", preallocate=share, **GPU)
    assert (found["XLA_PYTHON_CLIENT_PREALLOCATE"], found.get("XLA_CLIENT_MEM_FRACTION")) == settings
    assert found["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "", "JAX refuses a shell's old name beside the new one"


AUTOTUNE, ALIKE = "--xla_gpu_autotune_level=", "--xla_gpu_deterministic_ops=true"


@pytest.mark.parametrize(
    ("asked", "flags"),
    [
        ({}, None),
        ({"cudnn_autotune": "on"}, AUTOTUNE + "4"),
        ({"deterministic": "on"}, ALIKE),
        ({"cudnn_autotune": "off", "deterministic": "on"}, f"{AUTOTUNE}0 {ALIKE}"),
    ],
)
@pytest.mark.parametrize("inherited", ["", "--xla_dump_to=/tmp/x"])
def test_xla_s_kernels_are_chosen_by_flags_behind_those_that_are_there(monkeypatch, asked, flags, inherited):
    monkeypatch.setenv("XLA_FLAGS", inherited)
    found = environ("jax", "single", **asked, **GPU).get("XLA_FLAGS")
    assert found == (None if flags is None else f"{inherited} {flags}".strip())


@pytest.mark.parametrize(
    ("adapter", "strategy", "asked", "synchronous"),
    [
        *(("caffempi", name, {}, True) for name in ("data_parallel", "two_level", "parameter_server")),
        ("caffempi", "parameter_server_async", {}, False),
        *(("cntk", name, {}, True) for name in ("single", "data_parallel")),
        *(("cntk", name, {}, False) for name in ("one_bit_sgd", "block_momentum")),
        ("mxnet", "dist_sync", {}, True),
        ("mxnet", "dist_sync", {"compression": "2bit"}, False),
        ("mxnet", "dist_async", {}, False),
        ("pytorch", "ddp", {}, True),
        ("pytorch", "ddp", {"compression": "fp16"}, False),
        ("pytorch", "local_sgd", {}, False),
        ("pytorch", "parameter_server", {}, True),
        ("pytorch", "parameter_server", {"mode": "async"}, False),
        ("pytorch", "parameter_server", {"backups": 1}, False),
        ("tensorflow", "model_parallel", {"devices": 4}, True),
        *(("tensorflow", name, {}, False) for name in ("parameter_server", "coordinator")),
    ],
)
def test_what_trains_as_one_device_does_is_declared(adapter, strategy, asked, synchronous):
    assert adapters()[adapter].synchronous(case_of(adapter, strategy, **asked)) is synchronous


@pytest.mark.parametrize(
    ("adapter", "strategy", "asked", "stages", "microbatches"),
    [
        ("pytorch", "ddp", {}, 1, 1),
        ("pytorch", "accumulate", {"batch": 8}, 1, 4),
        ("pytorch", "accumulate", {"microbatches": 3}, 1, 3),
        ("pytorch", "pipeline", {"ranks_per_node": 4}, 4, 4),
        ("pytorch", "hybrid", {"ranks_per_node": 4}, 2, 4),
        ("tensorflow", "multiworker_mirrored", {}, 1, 1),
        ("tensorflow", "mirrored", {"devices": 4}, 1, 1),
        ("tensorflow", "model_parallel", {"devices": 4}, 4, 1),
        ("tensorflow", "model_parallel", {"devices": 4, "microbatches": 3}, 4, 3),
    ],
)
def test_a_network_in_stages_is_one_on_all_devices(adapter, strategy, asked, stages, microbatches):
    case, declared = case_of(adapter, strategy, **asked), adapters()[adapter]
    assert (declared.model_parallel_size(case), declared.microbatches(case)) == (stages, microbatches)


def test_what_seldom_exchanges_or_hands_on_activations_has_no_share_of_the_wire():
    shares = [adapters()["pytorch"].wire_share(case_of("pytorch", each)) for each in ("ddp", "local_sgd", "pipeline")]
    assert shares == [1 / 64, 0, 0]
    periodic = [each.name for each in adapters()["cntk"].capabilities.strategies if each.periodic]
    assert periodic == ["block_momentum"]


@pytest.mark.parametrize(
    ("adapter", "ranks", "devices"),
    [
        ("jax", set(), {"pmap"}),
        (
            "mxnet",
            {"dist_sync", "dist_device_sync", "dist_async"},
            {"kvstore_local", "kvstore_device", "dist_device_sync"},
        ),
        (
            "tensorflow",
            {"multiworker_mirrored", "parameter_server"},
            {"mirrored", "keras_fit", "coordinator", "model_parallel", "model_parallel_inference"},
        ),
    ],
)
def test_strategies_say_where_they_spread(adapter, ranks, devices):
    strategies = adapters()[adapter].capabilities.strategies
    assert {each.name for each in strategies if each.distributed} == ranks
    assert {each.name for each in strategies if each.several_devices} == devices


MXNET, TENSORFLOW = "adapters/mxnet/server.py", "adapters/tensorflow/server.py"
TF = {"servers": 2, "threads": 2}


@pytest.mark.parametrize(
    ("adapter", "strategy", "asked", "sidecars"),
    [
        ("mxnet", "dist_sync", {"nodes": 2}, [(MXNET, "scheduler"), (MXNET, "server"), (MXNET, "server")]),
        ("mxnet", "dist_sync", {"nodes": 2, "servers": 1}, [(MXNET, "scheduler"), (MXNET, "server")]),
        ("mxnet", "kvstore_local", {}, []),
        ("tensorflow", "multiworker_mirrored", {}, []),
        ("tensorflow", "parameter_server", TF, [(TENSORFLOW, "ps", each, "0", "2", "2", "2") for each in "01"]),
        (
            "tensorflow",
            "coordinator",
            {"devices": 3, **TF},
            [
                (TENSORFLOW, job, each, "1", "3", "2", "2")
                for job, count in (("worker", "012"), ("ps", "01"))
                for each in count
            ],
        ),
    ],
)
def test_servers_run_beside_the_ranks(adapter, strategy, asked, sidecars):
    assert list(adapters()[adapter].sidecars(case_of(adapter, strategy, **asked))) == sidecars
    assert all((ROOT / program).is_file() for program, *_ in sidecars)


@pytest.mark.parametrize(
    ("adapter", "strategy", "asked", "times"),
    [
        ("pytorch", "ddp", {}, True),
        ("pytorch", "ddp", {"tuning": "default"}, False),
        ("pytorch", "ddp", {"precision": "bfloat16"}, False),
        ("pytorch", "ddp", GPU, False),
        ("pytorch", "tensor_parallel", {}, False),
        ("pytorch", "ddp", {"compile": True}, False),
        ("pytorch", "ddp", {"onednn": "off"}, False),
        ("pytorch", "ddp", {"products": "torch"}, True),
        ("pytorch", "ddp", {"products": "torch", "pointwise": "torch"}, False),
        *(("caffempi", "single", {"precision": name}, name == "float32") for name in ("float32", "float64")),
        *((name, "allreduce", {}, name == "horovod-pytorch") for name in HOROVOD),
    ],
)
def test_layers_that_are_timed_on_the_case_s_batch_want_a_proof_for_each(adapter, strategy, asked, times):
    case = case_of(adapter, strategy, **{"tuning": "tuned", **asked})
    assert adapters()[adapter].tunes_to_batch(case) is times


# --- Horovod ------------------------------------------------------------------


@pytest.mark.parametrize("name", HOROVOD)
def test_an_engine_s_own_code_travels_with_horovod_s(name):
    engine, folder = name.partition("-")[2], "adapters/horovod"
    names = {each for each in bundle.sources(adapters()[name]) if each.startswith("adapters/")}
    own = {f"{folder}/over_{engine}.py", f"{folder}/ranks.py", f"adapters/{engine}/lower.py"}
    assert own <= names
    allowed = ("adapters/__init__.py", f"{folder}/__init__.py", *own, f"adapters/{engine}/")
    assert all(each.startswith(allowed) and not each.endswith("plugin.py") for each in names)
    assert adapters()[name].remedy.startswith(f"stagebench env make {name}")


@pytest.mark.parametrize("name", HOROVOD)
def test_its_controller_decides_whether_ranks_meet_by_mpi(name):
    found = {
        each: adapters()[name].mpi(case_of(name, "allreduce", controller=each)) for each in ("auto", "gloo", "mpi")
    }
    assert found == {"auto": "", "gloo": "", "mpi": "Open MPI"}


# --- MXNet's libraries ----------------------------------------------------------


@pytest.fixture
def for_gpus(tmp_path):
    """The Python of an environment with NVIDIA's wheels, and with MXNet's for GPUs when asked."""
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    for name in ("cudnn", "cublas"):
        (site / "nvidia" / name / "lib").mkdir(parents=True)

    def make(package):
        (site / f"{package}-1.9.1.dist-info").mkdir()
        return tmp_path / "bin" / "python", site / "nvidia"

    return make


@pytest.mark.parametrize(
    ("package", "driver", "said"), [("mxnet_cu112", False, True), ("mxnet_cu112", True, False), ("mxnet", False, False)]
)
def test_the_wheel_for_gpus_alone_wants_the_driver_and_nvidia_s_libraries(monkeypatch, for_gpus, package, driver, said):
    monkeypatch.setattr(mxnet, "LIBRARIES", {})
    monkeypatch.setattr(mxnet, "has_driver", lambda: driver)
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/own")
    python, nvidia = for_gpus(package)
    adapter = adapters()["mxnet"]
    assert ("loads libcuda.so.1 of NVIDIA's driver" in str(adapter.missing(python))) is said
    found = adapter.environ(case_of("mxnet", "single"), python).get("LD_LIBRARY_PATH")
    wheels = ":".join([*(str(nvidia / name / "lib") for name in ("cublas", "cudnn")), "/opt/own"])
    assert found == (None if package == "mxnet" else wheels)


def test_libraries_that_the_wheel_leaves_to_the_system_are_named_with_their_packages(monkeypatch):
    monkeypatch.setattr(mxnet, "find_library", lambda name: None if name == "quadmath" else "lib.so")
    assert adapters()["mxnet"].missing(PYTHON).endswith("apt-get install libquadmath0")
    monkeypatch.setattr(mxnet, "find_library", lambda name: "lib.so")
    assert adapters()["mxnet"].missing(PYTHON) is None
