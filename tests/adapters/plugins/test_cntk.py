"""What the controller is told, without CNTK."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stagebench.adapters.cntk import libraries, plugin
from stagebench.suite.contracts.case import Case, Placement
from stagebench.suite.files import DOCS

PYTHON = Path(sys.executable)
ADAPTER = plugin.CNTK()
CASE = Case(
    "cntk", "data_parallel", "mnist_small", Placement(ranks_per_node=2, launcher="mpiexec"), knobs={"block_steps": 10}
)


@pytest.fixture(autouse=True)
def _forgetful():
    cached = (plugin.open_mpi, plugin.package, plugin.amd_with_avx2, plugin.missing_image_libraries)
    for each in cached:
        each.cache_clear()
    yield
    for each in cached:
        each.cache_clear()


@pytest.fixture
def libraries_of_mpi(tmp_path, monkeypatch):
    """A folder that is the only one with Open MPI's libraries."""
    folder = tmp_path / "openmpi"
    folder.mkdir()
    for name in plugin.LINKS.values():
        (folder / name).touch()
    monkeypatch.setenv("STAGEBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(plugin, "ldconfig", list)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    monkeypatch.setattr(plugin, "USUAL", (str(folder),))
    monkeypatch.delenv(libraries.SETTING, raising=False)
    return folder


def test_only_the_sum_of_32_bits_is_a_stage_and_several_ranks_meet_by_open_mpi():
    for each in ADAPTER.capabilities.strategies:
        assert ("communication" in each.separable) == each.synchronous
        assert ADAPTER.mpi(CASE.on(strategy=each.name)) == ("Open MPI" if each.distributed else "")


def test_libraries_are_found_and_linked_under_the_names_of_old(libraries_of_mpi):
    assert ADAPTER.missing(PYTHON) is None
    folder = Path(ADAPTER.environ(CASE, PYTHON)["LD_LIBRARY_PATH"].split(":")[0])
    assert {link.name: link.resolve() for link in folder.iterdir()} == {
        name: libraries_of_mpi / target for name, target in plugin.LINKS.items()
    }


def test_links_that_lead_elsewhere_are_mended(libraries_of_mpi):
    folder = plugin.links()
    (folder / "libmpi.so.12").unlink()
    (folder / "libmpi.so.12").symlink_to("/nowhere/libmpi.so.40")
    assert (plugin.links() / "libmpi.so.12").resolve() == libraries_of_mpi / "libmpi.so.40"


@pytest.mark.parametrize("name", sorted(plugin.LINKS.values()))
def test_a_missing_library_is_said_with_the_packages(libraries_of_mpi, name):
    (libraries_of_mpi / name).unlink()
    found = ADAPTER.missing(PYTHON)
    assert "apt-get install openmpi-bin libopenmpi3" in found
    assert "of Debian 13 has no C++ library any more: build Open MPI 4 with --enable-mpi-cxx" in found


@pytest.mark.parametrize("variable", ["LD_LIBRARY_PATH", "PATH"])
def test_an_open_mpi_of_ones_own_is_found_by_either_path(libraries_of_mpi, monkeypatch, variable):
    (libraries_of_mpi / "bin").mkdir()
    (libraries_of_mpi / "bin" / "mpiexec").touch(mode=0o755)
    (libraries_of_mpi / "lib").mkdir()
    for name in plugin.LINKS.values():
        (libraries_of_mpi / name).rename(libraries_of_mpi / "lib" / name)
    assert ADAPTER.missing(PYTHON) is not None
    plugin.open_mpi.cache_clear()
    monkeypatch.setenv(variable, str(libraries_of_mpi / ("bin" if variable == "PATH" else "lib")))
    assert ADAPTER.missing(PYTHON) is None
    assert plugin.open_mpi() == libraries_of_mpi / "lib"


def test_the_linkers_list_is_asked(libraries_of_mpi, monkeypatch):
    monkeypatch.setattr(plugin, "USUAL", ())
    assert ADAPTER.missing(PYTHON) is not None
    plugin.open_mpi.cache_clear()
    monkeypatch.setattr(plugin, "ldconfig", lambda: [f"libmpi.so.40 (libc6,x86-64) => {libraries_of_mpi}/libmpi.so.40"])
    assert ADAPTER.missing(PYTHON) is None


def image_libraries(folder, names):
    """Empty libraries of these names; they load."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler makes a library here")
    (folder / "nothing.c").write_text("int nothing;\n")
    for name in names:
        subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / name, folder / "nothing.c"], check=True)


@pytest.mark.parametrize("variable", ["LD_LIBRARY_PATH", libraries.SETTING])
def test_the_image_reader_wants_libraries_that_load(tmp_path, monkeypatch, variable):
    monkeypatch.delenv(libraries.SETTING, raising=False)
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    form = ADAPTER.capabilities.format("imagemap")
    names = list(libraries.IMAGE_LIBRARIES)
    image_libraries(tmp_path, names[1:])
    (tmp_path / names[0]).write_text("no library")
    monkeypatch.setenv(variable, str(tmp_path))
    assert ADAPTER.unreadable(form).startswith(libraries.remedy(names[:1]))
    assert str(DOCS / "cntk-libraries.md") in ADAPTER.unreadable(form)
    (tmp_path / names[0]).unlink()
    image_libraries(tmp_path, names[:1])
    plugin.missing_image_libraries.cache_clear()
    assert ADAPTER.unreadable(form) is None


def test_what_is_missing_is_named_with_the_remedy():
    remedy = libraries.remedy(["libjpeg.so.8", "libpng12.so.0"])
    for each in ("libjpeg.so.8", "libpng12.so.0", "libjpeg-turbo 2.1", "libpng 1.2", plugin.LIBRARIES_SETTING):
        assert each in remedy
    assert plugin.LIBRARIES_SETTING == libraries.SETTING


def test_no_other_format_wants_them(monkeypatch):
    monkeypatch.setattr(plugin, "missing_image_libraries", lambda folders: pytest.fail("asked"))
    assert {form.name: ADAPTER.unreadable(form) for form in plugin.FORMATS[:2]} == {"cbf": None, "ctf": None}


def test_their_folder_is_in_the_loaders_path_and_comes_last(libraries_of_mpi, monkeypatch):
    monkeypatch.setenv(libraries.SETTING, "~/old")
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/their/own")
    monkeypatch.setattr(plugin, "package", lambda interpreter: "/site/cntk")
    found = ADAPTER.environ(CASE, PYTHON)["LD_LIBRARY_PATH"].split(":")[1:]
    assert found == ["/site/cntk/libs", "/their/own", "/home/somebody/old"]


@pytest.mark.parametrize("amd", [False, True])
def test_only_tuned_processes_on_amd_get_mkls_setting(libraries_of_mpi, monkeypatch, amd):
    monkeypatch.setattr(plugin, "amd_with_avx2", lambda: amd)
    default, tuned = (ADAPTER.environ(CASE.on(tuning=tuning), PYTHON) for tuning in ("default", "tuned"))
    assert "MKL_DEBUG_CPU_TYPE" not in default
    assert ("MKL_DEBUG_CPU_TYPE" in tuned) == amd
    assert default["OMPI_MCA_mpi_yield_when_idle"] == tuned["OMPI_MCA_mpi_yield_when_idle"] == "1"
