import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stagebench.suite import __version__, plugins
from stagebench.suite.contracts.adapter import Adapter
from stagebench.suite.errors import RequestError, StoreError
from stagebench.suite.processes import bundle
from tests.support.errors import raising

CHECKOUT = Path(__file__).parents[2]
PACKAGE = {
    "vendor/__init__.py": "",
    "vendor/fast/__init__.py": "",
    "vendor/fast/plugin.py": "CONTROLLER = 1\n",
    "vendor/fast/worker.py": "raise RuntimeError('the controller imported a framework')\n",
    "vendor/fast/lower.py": "",
    "vendor/fast/kernels/sum.cpp": "// source\n",
    "vendor/fast/__pycache__/worker.cpython-311.pyc": "compiled",
    "vendor/other/worker.py": "",
}


class Vendor(Adapter):
    contract = 4
    name, title, package = "vendor", "Vendor", "vendor.fast"
    capabilities = None


@pytest.fixture
def vendor(tmp_path, monkeypatch):
    """A third party's adapter, importable."""
    for name, text in PACKAGE.items():
        path = tmp_path / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    yield Vendor()
    for name in [name for name in sys.modules if name.partition(".")[0] == "vendor"]:
        del sys.modules[name]


def files(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_it_holds_the_worker_half_and_this_adapter_s_worker_side_only(vendor, tmp_path):
    folder = bundle.write(vendor, tmp_path / "bundles" / "vendor")
    found = files(folder)
    assert [name for name in found if name.startswith("vendor")] == [
        "vendor/__init__.py",
        "vendor/fast/__init__.py",
        "vendor/fast/kernels/sum.cpp",
        "vendor/fast/lower.py",
        "vendor/fast/worker.py",
    ]
    shipped = {"__main__.py", "bundle.json", "suite/__init__.py", "suite/worker/main.py", "workloads/graph.py"}
    assert shipped < set(found)
    ours = [name for name in found if name.startswith("suite/")]
    assert all("/worker/" in name or "__init__" in name for name in ours)
    assert not [name for name in found if "__pycache__" in name or "plugin" in name or ".partial" in name]
    assert os.listdir(tmp_path / "bundles") == ["vendor"]


def test_what_it_builds_on_travels_with_it_and_its_digest_follows_the_worker_side(vendor, tmp_path):
    alone = bundle.digest(vendor)
    vendor.builds_on = ("vendor.other",)
    found = files(bundle.write(vendor, tmp_path / "vendor"))
    assert {"vendor/fast/worker.py", "vendor/other/worker.py"} < set(found)
    assert bundle.digest(vendor) != alone
    before = bundle.digest(vendor)
    (tmp_path / "site/vendor/fast/plugin.py").write_text("CONTROLLER = 2\n")
    assert bundle.digest(vendor) == before, "the plugin is the controller's"
    (tmp_path / "site/vendor/fast/lower.py").write_text("# faster\n")
    assert bundle.digest(vendor) != before
    vendor.builds_on = ("vendor.gone",)
    with raising(RequestError, "vendor.gone"):
        bundle.sources(vendor)


def test_bundle_json_names_every_file_s_digest_and_writing_again_keeps_them(vendor, tmp_path):
    folder = bundle.write(vendor, tmp_path / "vendor")
    about = json.loads((folder / "bundle.json").read_text())
    assert (about["format"], about["adapter"], about["digest"]) == (1, "vendor", bundle.digest(vendor))
    assert sorted(about["files"]) == [name for name in files(folder) if name != "bundle.json"]
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert about["files"]["vendor/fast/lower.py"] == empty
    folder = bundle.write(vendor, tmp_path / "vendor")
    stamps = {name: (folder / name).stat().st_mtime_ns for name in files(folder)}
    assert bundle.write(vendor, tmp_path / "vendor") == folder
    assert stamps == {name: (folder / name).stat().st_mtime_ns for name in files(folder)}
    adapter = plugins.adapters()["reference"]
    written = bundle.write(adapter, tmp_path / "bundle")
    assert bundle.written_digest(written) == bundle.digest(adapter)
    (written / "workloads" / "graph.py").write_text("# another one\n")
    assert bundle.written_digest(written) != bundle.digest(adapter)


@pytest.mark.parametrize("about", ["whole", "torn"])
def test_changed_code_wants_another_run_folder(vendor, tmp_path, about):
    there = bundle.write(vendor, tmp_path / "vendor")
    (tmp_path / "site/vendor/fast/lower.py").write_text("# changed\n")
    if about == "torn":
        (there / "bundle.json").write_text("{")
    with raising(RequestError, "lower.py", "vendor"):
        bundle.write(vendor, tmp_path / "vendor")
    (there / "suite" / "__init__.py").write_text('__version__ = "0.0.1"\n')
    with raising(RequestError, __version__, there):
        bundle.write(vendor, tmp_path / "vendor")


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_text("# changed\n")], ids=["gone", "changed"])
def test_a_bundle_that_is_damaged_is_to_be_removed_and_then_written_again(vendor, tmp_path, damage):
    there = bundle.write(vendor, tmp_path / "vendor")
    damage(there / "vendor/fast/lower.py")
    with raising(RequestError, "vendor", "vendor/fast/lower.py"):
        bundle.write(vendor, tmp_path / "vendor")
    shutil.rmtree(there)
    assert bundle.write(vendor, tmp_path / "vendor") == there


def test_a_package_that_is_nowhere_and_a_place_that_cannot_be_written_are_told(vendor, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot write the bundle .*file.*: File exists"):
        bundle.write(vendor, tmp_path / "file" / "vendor")
    vendor.package = "vendor.slow"
    with raising(RequestError, "vendor", "vendor.slow"):
        bundle.write(vendor, tmp_path / "vendor")


def test_threads_are_handed_to_every_library():
    _, variables = bundle.command(Path("/env/bin/python"), Path("/b"), Path("/j.json"), 3)
    assert variables == {"OMP_NUM_THREADS": "3", "MKL_NUM_THREADS": "3", "OPENBLAS_NUM_THREADS": "3"}


@pytest.mark.parametrize("version", ["3.6", "3.8", "3.11", "3.13"])
def test_every_python_runs_the_bundle_s_code_wherever_it_stands(vendor, tmp_path, version):
    interpreter = python(version)
    (tmp_path / "job.json").write_text('{"format": 99}')
    folder = bundle.write(vendor, tmp_path / "vendor")
    tokens, _ = bundle.command(interpreter, folder, tmp_path / "job.json", 1)
    environ = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run(tokens, cwd=CHECKOUT, env=environ, capture_output=True, text=True, check=False)
    # The job is refused; an interpreter without NumPy does not even come to read it. Both tell where the code stood.
    assert "has format 99" in done.stderr or "No module named 'numpy'" in done.stderr
    assert f'"{folder}/suite/worker/main.py"' in done.stderr
    assert str(CHECKOUT / "suite") not in done.stderr
    assert not list(folder.rglob("__pycache__"))


def python(version):
    """An interpreter of that version, on PATH or among pyenv's; skips when there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    named = shutil.which(f"python{version}")
    for path in (*([Path(named)] if named else []), *pyenv.glob(f"{version}.*/bin/python")):
        said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
        if said.returncode == 0 and said.stdout.startswith(f"Python {version}."):
            return path
    pytest.skip(f"no Python {version} on this machine")
