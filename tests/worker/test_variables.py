"""Which variables of the environment change what is computed."""

import pytest

from suite.worker.variables import arithmetic


@pytest.mark.parametrize(
    "name",
    [
        *("ONEDNN_DEFAULT_FPMATH_MODE", "XLA_FLAGS", "TF_ENABLE_ONEDNN_OPTS", "MKL_CBWR", "NVIDIA_TF32_OVERRIDE"),
        *("CUDA_LAUNCH_BLOCKING", "LD_PRELOAD", "LD_LIBRARY_PATH", "MALLOC_ARENA_MAX", "OMP_SCHEDULE"),
    ],
)
def test_what_changes_arithmetic_or_libraries_is_found(name):
    assert arithmetic({name: "1", "HOME": "/root"}) == {name: "1"}


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "TF_CONFIG", "PATH"])
def test_where_and_how_many_is_another_matter(name):
    assert arithmetic({name: "1"}) == {}
