"""`stagebench comm` from the command line to records, over communicators that need no framework."""

import json
import re
import sys
from pathlib import Path

import pytest

from stagebench.suite.analysis.links import written
from stagebench.suite.cli.comm import asked_for, sizes_from
from stagebench.suite.contracts.adapter import Backend
from stagebench.suite.contracts.case import OPERATIONS, Placement
from stagebench.suite.errors import RequestError, Unavailable
from stagebench.suite.plan.collectives import TIME_LIMIT, Asked, collectives, gradient_tensors, offers
from stagebench.suite.results.invariants import broken
from stagebench.suite.results.rank_report import Times
from stagebench.suite.results.records import COMM
from stagebench.suite.results.run_folder import RunFolder
from stagebench.workloads.networks import by_name

EVERY = tuple(word for operation in OPERATIONS for word in ("--op", operation))
FAST = ("--sizes", "4:64", "--seconds", "0")


@pytest.fixture
def wired(startable, monkeypatch):
    """Alpha offers communicators of the worker's tests, in this interpreter."""
    monkeypatch.setenv("STAGEBENCH_PYTHON_ALPHA", sys.executable)
    startable.adapters["alpha"].package = "wires"
    kinds = {"wire": "Wire", "wrong": "FlippedWire", "beginning": "BeginningWire"}
    startable.adapters["alpha"].backends = (
        *(Backend(name, "text over TCP", f"wires:{kind}", "ddp") for name, kind in kinds.items()),
        Backend("narrow", "one operation", "wires:Wire", "ddp", ("broadcast",)),
        Backend("elsewhere", "", "wires:Wire", "ddp", environment="nowhere", requires=("nowhere",), remedy="make it"),
    )
    return startable


@pytest.mark.parametrize(
    ("option", "sizes"),
    [
        ("4:252", (4, 16, 64)),
        ("1K:1M", (1024, 4096, 16384, 65536, 262144, 1048576)),
        ("4b:16B", (4, 16)),
        ("1KiB", (1024,)),
    ],
)
def test_sizes(option, sizes):
    assert sizes_from(option) == sizes


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("", "'' is no message size"),
        ("3", "multiples of 4"),
        ("1M:4", "ends below its beginning"),
        ("4:16:64", "'16:64' is no message size"),
        ("16G", "at most 8G"),
    ],
)
def test_what_is_no_size_is_named(option, words):
    with pytest.raises(RequestError, match=words):
        sizes_from(option)


def test_sizes_are_written_as_people_read_them():
    sizes = (4, 1024, 1536, 1 << 26, 1 << 30)
    assert [written(size) for size in sizes] == ["4 B", "1 KiB", "1.5 KiB", "64 MiB", "1 GiB"]


@pytest.mark.parametrize("name", sorted(by_name()))
def test_gradient_tensors_are_the_network_s_in_backward_order(name):
    graph, found = by_name()[name].graph(), gradient_tensors(by_name()[name])
    assert sum(count for _, count in found) == graph.parameter_count
    assert [name for name, _ in found] == [parameter.name for parameter in reversed(graph.parameters)]


def test_the_time_limit_leaves_room_for_every_sample_asked_for(wired):
    def limit(operation, seconds, sizes="4", **more):
        whole = {"operations": (operation,), "workloads": (), "sizes": sizes_from(sizes), "ranks": 2, **more}
        (found,) = collectives(Asked(seconds=seconds, **whole), offers()["wire"], by_name())
        return found.case.time_limit

    sampled = 1.1 * 600.0  # with the warm-up
    # 14 sizes, of three of them 5 times as many samples beside computation.
    assert limit("all-reduce", 600.0, "4:256M") > (14 + 3 * 5) * sampled + TIME_LIMIT
    assert limit("broadcast", 0.25, "4:256M", budget=7200.0) > 7200.0 + TIME_LIMIT
    # Every different tensor, then all of them in a row, together and flat.
    different = {count for _, count in gradient_tensors(by_name()["resnet50"])}
    assert limit("", 600.0, workloads=("resnet50",)) > (len(different) + 3) * sampled + TIME_LIMIT
    assert limit("broadcast", 0.0) == TIME_LIMIT == 1800.0


def test_networks_alone_leave_the_sizes_out_and_operations_alone_the_networks(toys):
    def asked(**options):
        found = asked_for(**{**dict.fromkeys(("op", "workload", "ranks", "hosts", "launcher")), **options}, **FIXED)
        return len(found.operations), found.workloads

    assert asked() == (6, ("resnet50",))
    assert asked(op=["broadcast"]) == (1, ())
    assert asked(workload=["alexnet"]) == (0, ("alexnet",))
    assert asked(workload=["all"]) == (0, tuple(by_name()))
    assert asked(op=["broadcast"], workload=["alexnet"]) == (1, ("alexnet",))


FIXED = {"sizes": "4", "seconds": 0.0}


def test_ranks_are_two_on_a_host_and_one_on_each_of_several_whose_names_a_launcher_may_choose(wired):
    def placement(hosts, nodes, launcher, ranks=None):
        nothing = dict.fromkeys(("op", "workload"))
        asked = asked_for(**nothing, hosts=hosts, nodes=nodes, launcher=launcher, ranks=ranks, **FIXED)
        (found,) = {resolved.case.placement for resolved in collectives(asked, offers()["wire"], by_name())}
        return found

    assert placement(None, 3, "many") == Placement(nodes=3, ranks_per_node=1, launcher="many")
    assert placement(None, 3, None) == Placement(nodes=3, ranks_per_node=1, launcher="many")
    assert placement("a,b", 2, None) == placement("a,b", None, None)
    assert placement("a,b", None, None) == Placement(nodes=2, ranks_per_node=1, launcher="many", hosts=("a", "b"))
    assert placement("a,b", None, None, ranks=4).ranks_per_node == 4
    here = Placement(nodes=1, ranks_per_node=2, launcher="local")
    assert placement(None, None, None) == placement("localhost", None, None) == here


def test_every_operation_on_two_ranks_with_records_and_json(stagebench, wired, tmp_path):
    told = stagebench("comm", "--backend", "wire", *EVERY, *FAST, "-o", str(tmp_path / "run"), "--json")
    assert told.code == 0, told.out
    found = json.loads(told.out)
    assert found["outcomes"] == {"ok": 6}
    operations = [link["case"]["operation"] for link in found["links"]]
    assert operations == list(OPERATIONS)
    for link in found["links"]:
        assert [point["bytes"] for point in link["points"]] in ([4, 16, 64], [8, 16, 64])
        assert all(point["late"] >= 0 for point in link["points"])
        figures = {point["bytes"]: point["seconds"] for point in link["points"] if point["seconds"]}
        # On a busy machine samples begin late, and too few may be left for a figure.
        assert all(point["late"] > 0 for point in link["points"] if point["bytes"] not in figures)
        if len(figures) == 3:
            # Noise may set one of the two to 0. The line passes among the points all the same.
            fit = link["fit"]
            shares = [(fit["alpha"] + fit["beta"] * size) / seconds for size, seconds in figures.items()]
            assert min(shares) <= 1 + 1e-9
            assert max(shares) >= 1 - 1e-9
        else:
            assert link["fit"] is None
        assert link["transport"] == "text"
        assert [memory["host_bytes"] > 1 << 20 for memory in link["memory"]] == [True, True]
        assert link["noise"]["reference_slowdown"] >= 1.0


def slower(row: Times) -> Times:
    return row._replace(sample_s=[1e6 * each for each in row.sample_s]) if hasattr(row, "sample_s") else row


def test_a_record_says_how_quiet_its_host_was_and_its_run_what_the_command_was_without_a_cache(
    stagebench, wired, tmp_path, monkeypatch
):
    (tmp_path / "file").touch()
    monkeypatch.setenv("STAGEBENCH_CACHE", str(tmp_path / "file" / "below"))
    monkeypatch.setattr("sys.argv", ["/usr/bin/stagebench", "comm", "-o", str(Path("~/there").expanduser())])
    told = stagebench("comm", "--backend", "wire", "--op", "broadcast", *FAST, "-o", str(tmp_path / "run"))
    assert told.code == 0, told.out
    folder = RunFolder.open(tmp_path / "run", COMM)
    assert folder.about.command == ("stagebench", "comm", "-o", "~/there")
    (record,) = (folder.record(entry.id, 0) for entry in folder.cases)
    for rank in record.ranks:
        assert min(rank.noise.reference_before_s + rank.noise.reference_after_s) > 0
        assert rank.noise.comm.seconds > 0
        assert rank.noise.native is None
        assert rank.memory.host_bytes > 1 << 20
    assert broken(record) is None
    slow = tuple(rank.but(exchanges=tuple(slower(row) for row in rank.exchanges)) for rank in record.ranks)
    assert re.fullmatch(r"its samples took \S+ s, and all of it \S+ s", broken(record.but(ranks=slow)) or "")
    no_time = tuple(rank.but(noise=rank.noise._replace(reference_after_s=(0.0,))) for rank in record.ranks)
    assert broken(record.but(ranks=no_time)) == "rank 0: its reference computation took no time"


def test_a_table_a_fit_and_what_comes_next(stagebench, wired, tmp_path):
    run = str(tmp_path / "run")
    told = stagebench(
        "comm", "--backend", "beginning", "--op", "all-reduce", "--sizes", "64K", "--seconds", "0", "-o", run
    )
    assert told.code == 0, told.out
    assert "beginning all-reduce, 2 ranks, local" in told.out
    assert "64 KiB" in told.out
    assert "all-reduce beside computation" in told.out
    assert f"{run}: 1 ok\nNext: stagebench report {run}" in told.out


def test_a_wrong_result_is_a_crash_that_names_the_place(stagebench, wired, tmp_path):
    told = stagebench("comm", "--backend", "wrong", "--op", "broadcast", *FAST, "-o", str(tmp_path / "run"))
    assert told.code == 1
    assert "rank 1: WrongResult: broadcast of 1 numbers: rank 1 of 2 has" in told.out


def test_what_has_a_record_is_not_measured_again(stagebench, refusal, wired, tmp_path):
    command = ("comm", "--backend", "wire", "--op", "broadcast", "--op", "all-gather", *FAST, "-o", str(tmp_path))
    assert stagebench(*command).code == 0
    first, second = sorted((tmp_path / "records").iterdir())
    before = first.stat().st_mtime_ns
    second.unlink()
    told = stagebench(*command)
    assert "2 cases, 2 processes, 1 of them measured before" in told.out
    assert first.stat().st_mtime_ns == before
    assert second.exists()
    other = refusal("comm", "--backend", "wire", "--op", "broadcast", *FAST, "-o", tmp_path)
    assert "was begun with another plan" in other


def test_what_a_backend_lacks_is_skipped_and_named_when_asked_for(stagebench, refusal, wired, tmp_path):
    everything = stagebench("comm", "--backend", "narrow", *FAST, "-o", str(tmp_path / "a"), "--json")
    assert everything.code == 0
    assert json.loads(everything.out)["outcomes"] == {"ok": 1}
    command = ("comm", "--backend", "narrow", *FAST, "--op", "broadcast", "--op", "all-reduce")
    asked = stagebench(*command, "-o", str(tmp_path / "b"))
    assert asked.code == 0
    assert "unsupported: narrow all-reduce, 2 ranks: narrow has no all-reduce; it has broadcast" in asked.out
    half = refusal(*command[:-4], "--op", "broadcast", "--dtype", "bfloat16", "-o", tmp_path / "d", kind=Unavailable)
    assert "narrow exchanges no bfloat16; it exchanges float32" in half
    assert refusal("comm", "--backend", "narrow", "--workload", "mnist_small", "-o", tmp_path / "c")


def test_what_is_not_here_is_unavailable_with_the_remedy(refusal, wired, tmp_path):
    for words, remedy in (
        (("--backend", "elsewhere"), "make it"),
        (("--backend", "wire", "--launcher", "many", *EVERY), "no manyexec"),
    ):
        assert remedy in refusal("comm", *words, *FAST, "-o", tmp_path, kind=Unavailable)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--backend", "wirre"), "there is no backend 'wirre'; did you mean 'wire'?"),
        (("--op", "allreduce"), "there is no operation 'allreduce'; did you mean 'all-reduce'?"),
        (("--dtype", "float8"), "there is no type of numbers 'float8'"),
        (("--workload", "alexnett"), "there is no workload 'alexnett'; did you mean 'alexnet'?"),
        (("--launcher", "locla"), "there is no launcher 'locla'; did you mean 'local'?"),
        (("--sizes", "4:x"), "'x' is no message size"),
        (("--hosts", "a,a"), "every host once"),
        (("--hosts", "a,b", "--nodes", "3"), "--nodes 3, but --hosts a,b names 2; name one host a node"),
        (("--ranks", "1"), "--ranks 1 on one node is one rank altogether, which has no other rank to exchange with"),
        (("--ranks", "1", "--hosts", "a"), "one rank altogether"),
    ],
)
def test_slips_are_answered_before_anything_starts(refusal, wired, tmp_path, arguments, words):
    assert words in refusal("comm", *arguments, "-o", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_list_backends(stagebench, wired):
    rows = {row["backend"]: row for row in json.loads(stagebench("list", "backends", "--json").out)}
    assert rows["wire"]["here"]
    assert rows["narrow"]["operations"] == ["broadcast"]
    assert not rows["elsewhere"]["here"]
    assert "make it" in rows["elsewhere"]["problem"]


def test_sizes_for_which_the_budget_does_not_last_are_named(stagebench, wired, tmp_path):
    asked = ("--op", "broadcast", "--sizes", "4:64", "--seconds", "0.01", "--budget", "0.001")
    told = stagebench("comm", "--backend", "wire", *asked, "-o", str(tmp_path / "run"))
    assert told.code == 0, told.err
    assert "skipped: 16 B, 64 B, beyond the budget of 0.001 s; --budget 0 measures all" in told.out
    told = stagebench("comm", "--backend", "wire", *asked, "-o", str(tmp_path / "other"), "--json")
    (link,) = json.loads(told.out)["links"]
    assert link["skipped"] == [16, 64]
