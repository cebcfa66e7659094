"""Which variables of the environment change what is computed."""

import pytest

from stagebench.suite.worker import variables
from stagebench.suite.worker.variables import Variables, arithmetic, settings

OWN = Variables(["XLA_", "TF_"], ["RING_"], ["TF_CONFIG", "RING_RANK"])


@pytest.mark.parametrize(
    "name",
    [
        *("ONEDNN_DEFAULT_FPMATH_MODE", "XLA_FLAGS", "TF_ENABLE_ONEDNN_OPTS", "MKL_CBWR", "NVIDIA_TF32_OVERRIDE"),
        *("NPY_DISABLE_CPU_FEATURES", "NPY_ENABLE_CPU_FEATURES", "OPENBLAS_CORETYPE", "BLIS_ARCH_TYPE", "FLEXIBLAS"),
        *("MKLDNN_VERBOSE", "ZENDNN_ENABLE_MEMPOOL", "GOMP_CPU_AFFINITY", "MKL_DOMAIN_NUM_THREADS", "LD_AUDIT"),
        *("CUDA_LAUNCH_BLOCKING", "LD_PRELOAD", "LD_LIBRARY_PATH", "MALLOC_ARENA_MAX", "OMP_SCHEDULE"),
    ],
)
def test_what_changes_arithmetic_or_libraries_is_found_and_not_where_and_how_many(name):
    others = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "TF_CONFIG", "PATH", "HOME")
    assert arithmetic({name: "1", **dict.fromkeys(others, "1")}, OWN) == {name: "1"}


def test_a_framework_s_own_are_its_adapter_s_to_name():
    found = {"RING_CYCLE": "1", "RING_RANK": "0", "TF_CONFIG": "{}", "XLA_FLAGS": "-a", "MKL_CBWR": "AVX2"}
    assert settings(found, OWN) == {"MKL_CBWR": "AVX2", "RING_CYCLE": "1", "XLA_FLAGS": "-a"}
    assert settings(found, Variables()) == {"MKL_CBWR": "AVX2"}
    assert arithmetic(found, OWN) == {"MKL_CBWR": "AVX2", "XLA_FLAGS": "-a"}


def test_settings_in_libraries_files_are_shown_without_secrets(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(variables, "FILES", [name for name in variables.FILES if name.startswith("~")])
    (tmp_path / ".nccl.conf").write_text("# mine\nNCCL_ALGO=Ring\n\nNCCL_SECRET=x\nNCCL_PROTO=LL\n")
    (tmp_path / ".openmpi").mkdir()
    (tmp_path / ".openmpi" / "mca-params.conf").write_text("# nothing\n")
    assert variables.written() == {"~/.nccl.conf": "NCCL_ALGO=Ring; NCCL_PROTO=LL"}
