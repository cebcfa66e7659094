import errno
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from stagebench import suite
from stagebench.suite.cli import app, main
from stagebench.suite.errors import Interrupted, RequestError

ROOT = Path(suite.__file__).parent.parent


def test_list_what_plugins_bring(stagebench):
    told = stagebench("list", "adapters")
    assert told.code == 0
    assert [line.split()[0] for line in told.out.splitlines()] == ["name", "alpha", "beta"]
    (alpha, _) = json.loads(stagebench("list", "adapters", "--json").out)
    assert alpha["knobs"]["bucket"] == {"values": "int", "default": 25, "help": "MB of a bucket"}
    assert alpha["strategies"] == ["single", "ddp", "mirror", "free", "pipe"]
    rows = {row["name"]: row for row in json.loads(stagebench("list", "workloads", "--json").out)}
    assert rows["alexnet"]["parameters"] == 60_965_224
    assert rows["alexnet"]["gradient_bytes"] == 4 * 60_965_224
    assert "25,557,032" in stagebench("list", "workloads").out
    rows = json.loads(stagebench("list", "strategies", "--json").out)
    told = [*(("alpha", name) for name in alpha["strategies"]), ("beta", "single"), ("beta", "ring")]
    assert [(row["adapter"], row["strategy"]) for row in rows] == told
    assert [row["name"] for row in json.loads(stagebench("list", "launchers", "--json").out)] == ["local", "many"]
    assert "quick" in {row["name"] for row in json.loads(stagebench("list", "plans", "--json").out)}


def test_list_formats(stagebench, gamma):
    rows = json.loads(stagebench("list", "formats", "--json").out)
    assert [(row["format"], row["adapter"], row["holds"], row["whole"], row["ordered"]) for row in rows] == [
        ("whole", "gamma", ["image folders"], True, False),
        ("cut", "gamma", ["image folders", "array files"], False, False),
        ("ordered", "gamma", ["array files"], False, True),
    ]
    assert "image folders, array files" in stagebench("list", "formats").out
    rows = json.loads(stagebench("list", "adapters", "--json").out)
    assert {row["name"]: (row["formats"], row["optimisers"]) for row in rows} == {
        "alpha": (["files"], ["sgd"]),
        "beta": ([], ["sgd"]),
        "gamma": (["files", "whole", "cut", "ordered"], ["adam", "sgd"]),
    }


def test_data_are_made_listed_and_checked(stagebench, data_home):
    pytest.importorskip("sklearn", reason="making data sets needs scikit-learn: pip install 'stagebench[data]'")
    assert "stagebench data make digits" in stagebench("data", "list").out
    told = stagebench("data", "make", "imagenet-like", "--classes", "2", "--images", "1", "--size", "64x48")
    assert told.code == 0
    assert f"{data_home / 'imagenet-like'}: 2 images in 2 classes" in told.out
    assert "1,797 digits" in stagebench("data", "make", "digits").out
    rows = json.loads(stagebench("data", "list", "--json").out)
    assert [(row["name"], row["made"], row["remedy"]) for row in rows] == [
        ("imagenet-like", True, None),
        ("digits", True, None),
        ("python-topics", False, "stagebench data make python-topics"),
        ("mnist", False, f"put MNIST's idx files (plain or .gz) into {data_home / 'mnist'}"),
    ]
    told = stagebench("data", "check", "imagenet-like")
    assert (told.code, "2 of 2 images can be read" in told.out) == (0, True)


def test_data_check_names_the_bad_ones_and_says_once_what_is_neither_class_nor_image(stagebench, tmp_path):
    photos = tmp_path / "photos"
    for name in ("a/1.png", ".ipynb_checkpoints/1.png", "a/._1.png"):
        (photos / name).parent.mkdir(parents=True, exist_ok=True)
        Image.linear_gradient("L").save(photos / name)
    (photos / "a" / "bad.jpg").write_text("no")
    told = stagebench("data", "check", str(photos))
    assert told.code == 1
    assert f"{photos} has one class, a; " in told.out
    assert "bad.jpg: not an image" in told.out
    assert "1 of 2 images can be read" in told.out
    assert told.out.count("left out 2, neither classes nor images: .ipynb_checkpoints/, a/._1.png") == 1
    (photos / "a" / "bad.jpg").unlink()
    (photos / "b").mkdir()
    Image.linear_gradient("L").save(photos / "b" / "2.png")
    told = stagebench("data", "check", str(photos), "--json")
    found = json.loads(told.out)
    assert (told.code, found["samples"], found["left_out"]) == (0, 2, [".ipynb_checkpoints/", "a/._1.png"])


def test_the_root_of_a_set_is_refused_with_the_folder_to_give(refusal, tmp_path):
    for name in ("train/a", "train/b", "val/a"):
        (tmp_path / "set" / name).mkdir(parents=True)
        Image.linear_gradient("L").save(tmp_path / "set" / name / "1.png")
    assert refusal("data", "check", tmp_path / "set").endswith(f": give {tmp_path / 'set' / 'train'}")


def test_data_check_refuses_images_that_show_nothing(stagebench, tmp_path):
    for name, grey in (("black", 0), ("white", 255)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        Image.new("RGB", (8, 8), (grey, grey, grey)).save(tmp_path / "photos" / name / "one.png")
    told = stagebench("data", "check", str(tmp_path / "photos"))
    problem = "photos: each image has the same value in every pixel, so a network learns nothing from it; replace them"
    assert (told.code, problem in told.out, "2 of 2 images can be read" in told.out) == (1, True, True)
    Image.linear_gradient("L").save(tmp_path / "photos" / "black" / "picture.png")
    assert stagebench("data", "check", str(tmp_path / "photos")).code == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("data", "check", "nowhere"), "there is no data set 'nowhere'"),
        (("data", "check", "digts"), "did you mean 'digits'?"),
        (("data", "check", "imagenet-like"), "get it: stagebench data make imagenet-like"),
        (("data", "make", "imagenet-like", "--size", "500"), "'500' is not WIDTHxHEIGHT"),
        (("data", "make", "imagenet-like", "--size", "5x5"), "sides of 16 to 8192"),
    ],
)
def test_wrong_requests_are_refused(refusal, arguments, told):
    assert told in refusal(*arguments)


def test_a_python_that_does_not_work_is_refused_before_anything_starts(refusal, plan_file, tmp_path):
    plan = plan_file('name = "x"\n[[cases]]\nadapter = "beta"\nstrategy = "single"\nworkload = "mnist_small"\n')
    for command in (("run", str(plan), "-o", str(tmp_path / "out")), ("verify", "--adapter", "beta")):
        assert "--python alpha is /no-such-python" in refusal(*command, "--python", "alpha=/no-such-python")
    assert not (tmp_path / "out").exists()


def fail(error: Exception) -> Any:
    raise error


def read_nothing() -> None:
    with open("/proc/self/mem", "rb", buffering=0) as nowhere:  # nothing is mapped at its beginning
        raise AssertionError(nowhere.read(1))


@pytest.mark.parametrize(
    ("build", "code", "words"),
    [
        (lambda: fail(RequestError("no plan 'x'")), 2, "no plan 'x'\n"),
        (lambda: fail(Interrupted("stopped; run again")), 130, "stopped; run again\n"),
        (lambda: fail(PermissionError(errno.EACCES, "Permission denied", "records")), 2, "records: "),
        (lambda: bytes(1 << 62), 1, "there is too little memory: "),
        (read_nothing, 1, "a disk failed: Input/output error; "),
    ],
    ids=["request", "interrupted", "out of reach", "memory", "disk"],
)
def test_an_expected_error_is_one_message(monkeypatch, capsys, build, code, words):
    monkeypatch.setattr(app, "build", build)
    assert main() == code
    told = capsys.readouterr().err
    assert told.startswith("stagebench: " + words)
    assert len(told.splitlines()) == 1


def test_sigterm_says_what_ctrl_c_says(monkeypatch, capsys):
    def build():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10)
        except KeyboardInterrupt:
            raise Interrupted("stopped; run again") from None
        raise AssertionError("it goes on")

    monkeypatch.setattr(app, "build", build)
    before = signal.getsignal(signal.SIGTERM)
    assert main() == 143
    assert capsys.readouterr().err == "stagebench: stopped; run again\n"
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.fixture
def shell(tmp_path):
    """Run the real program, with a plugin found through its installed entry point."""
    site = tmp_path / "site"
    info = site / "toy-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[stagebench]\ntoy = toy_plugin\n")
    (site / "toy_plugin.py").write_text(
        "import os\n"
        "from stagebench.suite.contracts.hooks import hookimpl\n"
        "@hookimpl\n"
        "def stagebench_commands(app):\n"
        "    @app.command()\n"
        "    def toy():\n"
        "        if 'TOY_INTERRUPT' in os.environ: raise KeyboardInterrupt\n"
        "        raise ZeroDivisionError('a defect')\n"
    )
    program = [sys.executable, "-c", "import sys; from stagebench.suite.cli import program; sys.exit(program())"]

    def run(*arguments, limit=0, **environ):
        if limit:
            environ["PYTHONDONTWRITEBYTECODE"] = "1"  # Python would keep byte code that ends at the limit
        how = {"env": {**os.environ, "PYTHONPATH": f"{site}:{ROOT}", **environ}, "cwd": tmp_path, "timeout": 300}
        if limit:
            how["preexec_fn"] = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        return subprocess.run([*program, *arguments], capture_output=True, text=True, check=False, **how)

    return run


def test_the_real_program(shell):
    assert shell("--version").stdout == f"stagebench {suite.__version__}\n"
    told = shell("--help").stdout
    assert all(word in told for word in ("list", "doctor", "data", "toy"))
    refused = shell("data", "check", "nowhere")
    assert refused.returncode == 2
    assert refused.stderr.startswith("stagebench: ")
    assert len(refused.stderr.splitlines()) == 1
    assert shell("list", "adaptors").returncode == 2
    defect = shell("toy")
    assert defect.returncode == 2
    told = r"stagebench: the plugin 'toy' \(\S+toy_plugin\.py, line \d+\) fails: ZeroDivisionError: a defect; fix"
    assert re.match(told, defect.stderr), defect.stderr
    interrupted = shell("toy", TOY_INTERRUPT="1")
    assert (interrupted.returncode, interrupted.stderr) == (130, "stagebench: interrupted\n")


def test_an_interrupt_when_all_has_been_said_shows_no_traceback():
    program = """
import os, signal, sys
from stagebench.suite import cli
def handled(number, handler):
    before = real(number, handler)
    if handler == signal.SIG_DFL:
        os.kill(os.getpid(), signal.SIGINT)
    return before
real, signal.signal = signal.signal, handled
cli._run = lambda: 3
code = cli.program()
os.kill(os.getpid(), signal.SIGINT)
sys.exit(code)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "")


HOOK = "from stagebench.suite.contracts.hooks import hookimpl\n@hookimpl\n"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("\nimport nowhere\n", ["'toy' (toy_plugin, of toy)", "No module named 'nowhere'", "toy_plugin.py, line 2"]),
        ("def broken(:\n", ["'toy' (toy_plugin, of toy)", "SyntaxError", "toy_plugin.py, line 1"]),
        (f"{HOOK}def stagebench_adaptors(): pass\n", ["unknown hook 'stagebench_adaptors'", "toy_plugin"]),
        (f"{HOOK}def stagebench_adapters(): return [1 / 0]\n", ["the plugin 'toy'", "toy_plugin.py, line 3"]),
    ],
)
def test_a_plugin_that_is_broken_is_one_message_with_its_place(shell, tmp_path, body, words):
    (tmp_path / "site" / "toy_plugin.py").write_text(body)
    told = shell("doctor")
    assert told.returncode == 2
    assert "Traceback" not in told.stderr
    assert all(word in told.stderr for word in words), told.stderr
    assert told.stderr.rstrip().endswith("; fix or uninstall it")


def test_a_plugin_takes_no_other_command_s_place(shell, tmp_path):
    for name in ("run", "data", "serve"):
        body = f"{HOOK}def stagebench_commands(app): app.command({name!r})(lambda: None)\n"
        (tmp_path / "site" / "toy_plugin.py").write_text(body)
        told = shell("list", "adapters")
        assert told.returncode == 2
        assert f"brings the command {name!r}, which is there already; rename it, or uninstall it" in told.stderr
    named = f"{HOOK}def stagebench_commands(app):\n    @app.command()\n    def new_one(): print('mine')\n"
    (tmp_path / "site" / "toy_plugin.py").write_text(named)
    assert shell("new-one").stdout == "mine\n"


def test_a_disk_that_refuses_is_one_message_and_leaves_no_partial_file(shell, tmp_path):
    pytest.importorskip("sklearn", reason="making data sets needs scikit-learn: pip install 'stagebench[data]'")
    told = shell("data", "make", "imagenet-like", "-o", "photos", limit=20_000)  # no file may grow beyond 20 kB
    assert told.returncode == 1
    assert "cannot write" in told.stderr
    assert "run the same command again: it continues" in told.stderr
    assert "Traceback" not in told.stderr
    assert not list((tmp_path / "photos").rglob("*.partial"))


def test_help_is_quick_because_heavy_modules_wait():
    program = (
        "import sys; from stagebench.suite.cli import main; sys.argv[1:] = ['--help']; main(); print(*sys.modules)"
    )
    shown, loaded = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True, timeout=300
    ).stdout.rsplit("\n", 2)[:2]
    assert "Usage: stagebench" in shown
    heavy = {"numpy", "scipy", "pyarrow", "pydantic", "PIL", "sklearn", "jinja2", "rich", "psutil"}
    assert not heavy & set(loaded.split())
