"""No escape code of a log reaches a terminal or a page, no secret and no home folder a record or a page."""

import os
import sys

import pytest

from stagebench.suite.cli import main
from stagebench.suite.contracts.launcher import Process
from stagebench.suite.processes.attempt import Limits, run
from stagebench.suite.processes.evidence import last_lines
from stagebench.suite.text import plain
from stagebench.suite.worker.homes import without_homes
from stagebench.suite.worker.variables import Variables, arithmetic, digest, settings
from tests.suite.measuring import PLAN


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[1;1Hgone", "gone"),
        ("\x1b]0;a title\x07here", "here"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPq#0\x1b\\sixel", "sixel"),
        ("\x9b31mC1", "31mC1"),
        ("back\b\b\rspace\x00", "backspace"),
        ("\x1b", ""),
        ("ab\u202edc\u202c", "abdc"),
        ("two\n\tlines", "two\n\tlines"),
        ("Grüße, 日本", "Grüße, 日本"),
    ],
)
def test_codes_are_taken_out(text, left):
    assert plain(text) == left


def test_the_home_folder_is_a_tilde(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    assert plain("/home/ada/x and /home/ada, not /home/adamant") == "~/x and ~, not /home/adamant"
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 12345)  # as in a container: nobody knows this user
    assert plain("/home/ada/x") == "/home/ada/x"
    assert without_homes("-I/home/ada/x /Users/grace/y /home/bo") == "-I~/x ~/y ~"
    monkeypatch.setenv("HOME", "/root")
    assert plain("/root/x, /data/root/x, file:///root, -L/root") == "~/x, /data/root/x, file://~, -L~"
    monkeypatch.setenv("HOME", "/")
    assert plain("/x") == "/x"


def test_a_log_s_last_lines_and_a_reason_are_plain(tmp_path):
    (tmp_path / "log").write_bytes(b"\x1b[2J\n\x1b[31mout of\x1b[0m cheese\r\n")
    assert last_lines(tmp_path / "log", 3) == ["out of cheese"]
    words = r"print('\033]0;title\007\033[31mred alert'); import sys; sys.exit(3)"
    rank = Process((sys.executable, "-c", words), {"STAGEBENCH_RANK": "0"}, 0)
    attempt = run([rank], 1, tmp_path / "attempt", Limits(20, 20), lambda rank, message: None)
    assert "red alert" in attempt.reason
    assert "\x1b" not in attempt.reason + str(attempt.evidence)
    assert "\\x1b" not in str(attempt.evidence)


def test_variables_that_bear_a_secret_or_lead_into_a_home_are_not_reported_so(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    given = {
        "HOROVOD_SECRET_KEY": "1",
        "TF_API_TOKEN": "1",
        "TF_db_password": "1",
        "TF_passphrase": "1",
        "HOROVOD_AUTH": "1",
        "HOROVOD_PRIVATE_PEM": "1",
        "NCCL_DEBUG": "INFO",
        "LD_PRELOAD": "/home/ada/x.so",
    }
    assert settings(given, Variables(["TF_"], ["HOROVOD_"])) == {"NCCL_DEBUG": "INFO", "LD_PRELOAD": "~/x.so"}
    monkeypatch.setenv("HOME", "/root")  # as of a service, or of a container
    given = {"LD_LIBRARY_PATH": "/home/ada/lib:/usr/lib:/root", "XLA_FLAGS": "--xla_dump_to=/Users/grace/x"}
    shown = {"LD_LIBRARY_PATH": "~/lib:/usr/lib:~", "XLA_FLAGS": "--xla_dump_to=~/x"}
    own = Variables(["XLA_"])
    assert settings(given, own) == shown
    assert arithmetic(given, own) == given, "a proof's key has the true values"
    assert digest(given) != digest({**given, "LD_LIBRARY_PATH": "/home/bob/lib:/usr/lib:/root"})


@pytest.mark.slow
def test_records_and_pages_bear_no_secret_and_no_home(tmp_path, monkeypatch):
    home = tmp_path / "ada-lovelace"
    home.mkdir()
    (home / "plan.toml").write_text(PLAN)
    for name in ("HOROVOD_SECRET_KEY", "AWS_SECRET_ACCESS_KEY", "MKL_TOKEN"):
        monkeypatch.setenv(name, "hunter2")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("STAGEBENCH_CACHE", str(tmp_path / "cache"))
    folder, page = home / "run", home / "page"
    for words in (("run", home / "plan.toml", "--no-proofs", "-o", folder), ("report", folder, "-o", page)):
        monkeypatch.setattr("sys.argv", ["stagebench", *map(str, words)])
        assert main() == 0
    looked_at = [folder / "run.json", *(folder / "records").iterdir(), *(folder / "hosts").iterdir()]
    looked_at += [path for path in page.rglob("*") if path.is_file()]
    assert len(looked_at) > 4
    for path in looked_at:
        content = path.read_bytes()
        assert b"hunter2" not in content, path
        assert b"ada-lovelace" not in content, path
