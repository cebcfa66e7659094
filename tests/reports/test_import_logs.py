"""Logs as people have them: several runs in one file, prefixes, failed checks, runs that cannot be told apart."""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagebench.reports.command import import_, report
from stagebench.reports.imports.nccl_tests import OPERATIONS, OTHERS
from stagebench.reports.imports.programs import read
from stagebench.suite.analysis.links import links
from stagebench.suite.errors import RequestError
from stagebench.suite.results.foreign import Exchange
from stagebench.suite.results.run_folder import RunFolder

HOSTS = ("worker-0", "worker-1", "worker-2")
TYPES = {"float": (4, "float32"), "half": (2, "float16"), "bfloat16": (2, "bfloat16")}


class Log(NamedTuple):
    """A good log, and what it says: a label and a value a result, and the lines that are skipped."""

    text: str
    results: tuple[tuple[str, float], ...]
    skipped: int = 0


def nccl(
    program: str = "all_reduce_perf",
    ranks: tuple[int, ...] = (2, 2),  # on each host
    rows: tuple[tuple[str, str, int, str], ...] = (("float", "sum", 1024, "20.00"),),
    *,
    named: bool = True,
    wrong: str = "0",
    check: str = "0 OK",
    columns: str = "redop root time algbw busbw #wrong time algbw busbw #wrong",
) -> Log:
    lines = [f"# Collective test starting: {program}"] * named
    lines += [
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 graph: 0"
    ]
    lines += ["#", "# Using devices"]
    hosts = [host for host, count in zip(HOSTS, ranks, strict=False) for _ in range(count)]
    lines += [
        f"#  Rank {rank:2} Group  0 Pid   47 on   {host} device  0 [0x8d] H100" for rank, host in enumerate(hosts)
    ]
    lines += ["#", f"#       size         count      type   {columns}", "#        (B)    (elements)"]
    results = []
    for type_, reduction, size, time in rows:
        itemsize, dtype = TYPES.get(type_, (8, ""))
        row = f"{size:12}  {size // itemsize:12}  {type_:>8}  {reduction:>6}      -1  {time:>7}    0.05    0.08      0"
        lines.append(f"{row}  {time:>7}    0.05    0.08  {wrong:>5}")
        named_ = "" if reduction in ("sum", "none") else f" ({reduction})"
        of = "" if dtype == "float32" else f" of {dtype}"
        place = f"{len(hosts)} ranks"
        if dtype and program.removesuffix("_perf") in OPERATIONS:
            label = f"nccl{named_} {OPERATIONS[program.removesuffix('_perf')]}{of}, {place}"
            results.append((label, float(time) * 1e-6))
    lines += [
        f"# Out of bounds values : {check}",
        "# Avg bus bandwidth    : 1.76",
        "#",
        f"# Collective test concluded: {program}",
    ]
    others = {(type_, reduction) for type_, reduction, *_ in rows if type_ not in TYPES}
    known = program.removesuffix("_perf") in OPERATIONS
    return Log("\n".join(lines) + "\n", tuple(results), len(others) if known else 1)


def tf_cnn(mode: str = "training", model: str = "resnet50", rate: float = 300.1, processes: int = 1) -> Log:
    heading = f"TensorFlow:  1.15\nModel:       {model}\nDataset:     imagenet (synthetic)\nMode:        {mode}\n"
    heading += f"Batch size:  {32 * processes} global\n             32 per device\nDevices:     ['horovod/gpu:0']\n"
    heading += "Optimizer:   sgd\nVariables:   horovod\n==========\nRunning warm up\n"
    text = heading * processes + f"1\timages/sec: 301.2 +/- 0.0\ntotal images/sec: {rate:.2f}\n" * processes
    label = (
        f"tensorflow/horovod {model} {processes} {'rank' if processes == 1 else 'ranks'} batch 32 imagenet (synthetic)"
    )
    return Log(text, ((label, round(rate, 2)),)) if mode == "training" else Log(text, (), 1)


def horovod(model: str = "resnet50", devices: int = 4, each: float = 100.0) -> Log:
    text = f"Model: {model}\nBatch size: 32\nNumber of GPUs: {devices}\nRunning warmup...\nRunning benchmark...\n"
    text += f"Iter #0: {each - 1:.1f} img/sec per GPU\nIter #1: {each + 1:.1f} img/sec per GPU\n"
    text += f"Img/sec per GPU: {each:.1f} +-1.6\nTotal img/sec on {devices} GPU(s): {each * devices:.1f} +-6.4\n"
    place = f"{devices} {'rank' if devices == 1 else 'ranks'}"
    return Log(text, ((f"horovod/horovod {model} {place} batch 32 synthetic", round(each * devices, 1)),))


def mlperf(network: str = "resnet", devices: int = 8, ms: tuple[int, ...] = (5000,), status: str = "success") -> Log:
    now, lines = 1_621_390_023_063, []

    def event(key: str, value: Any = None, **more: Any) -> None:
        content = {"namespace": "", "time_ms": now, "event_type": "POINT_IN_TIME", "key": key, "value": value}
        lines.append(f":::MLLOG {json.dumps({**content, 'metadata': {'file': 'a.py', 'lineno': 7, **more}})}")

    for key, value in (("submission_benchmark", network), ("submission_org", "Dell"), ("submission_platform", "X")):
        event(key, value)
    for _ in range(2):  # of two ranks
        event("init_start")
        event("global_batch_size", 32 * devices)
    event("number_of_nodes", 1)
    event("accelerators_per_node", devices)
    event("run_start")
    event("train_samples", 10_000)
    for number, each in enumerate(ms):
        event("epoch_start", epoch_num=number)
        now += each
        lines.append("Node[0] Speed: 20766.49 samples/sec")
        event("epoch_stop", epoch_num=number)
    event("run_stop", status=status)
    name = {"resnet": "resnet50"}.get(network, network)
    place = f"{devices} {'rank' if devices == 1 else 'ranks'}"
    result = (f"mlperf/unknown {name} {place} batch 32 unknown", 1e7 * len(ms) / sum(ms))
    return Log("\n".join(lines) + "\n", (result,) if status == "success" else (), int(status != "success"))


def timm(rows: list[tuple[str, float, int]]) -> Log:
    text = "model,train_samples_per_sec,train_step_time,train_batch_size,train_img_size,param_count\n"
    text += "".join(f"{name},{rate},41.68,{batch},224,2.04\n" for name, rate, batch in rows)
    labels = [(f"pytorch/single {name} 1 rank batch {batch} synthetic", rate) for name, rate, batch in rows]
    return Log(text, tuple(labels))


CRASHED = st.sampled_from(
    [
        "",
        'Traceback (most recent call last):\n  File "a.py", line 3\n',
        "srun: error: worker-1: task 3: Killed\n",
        "Model:       vgg16\nDataset:     imagenet\nMode:        training\n",  # it printed no total
        "Model: vgg16\nBatch size: 64\nIter #0: 12.0 img/sec per GPU\n",
        "# Collective test starting: broadcast_perf\n# nThread 1 nGpus 1\n# Rank 0 Group 0 Pid 1 on x device 0\n",
    ]
)
PREFIXES = st.sampled_from(
    [
        "",
        "[1,0]<stdout>:",  # Open MPI 4 --tag-output
        "[1,0]<stdout>: ",
        "[prterun-host-77@1,0]<stdout>: ",
        "[0] ",  # Hydra -prepend-rank
        " 0: ",  # srun --label
        "12: ",
        "2026-07-09T10:00:00.1234567Z ",  # GitHub Actions
        "2026-07-09 10:00:00 ",
        "[2026-07-09T10:00:00.000Z] ",  # Jenkins
        "Jul 09 10:00:00 worker-0 run.sh[4711]: ",
        "worker-0  | ",
        "\x1b[32m",
    ]
)
ENDS = st.sampled_from(["", "\r", "\x1b[0m", "\x1b[K"])  # Windows, a terminal's colours, GitLab
TIMES = st.one_of(
    st.floats(0.01, 9999.99).map(lambda value: f"{value:.2f}"),
    st.integers(100_000, 9_999_999).map(str),
    st.sampled_from(["1.2e+07", "3.4e+08"]),
)


@st.composite
def nccl_logs(draw: st.DrawFn) -> Log:
    program = draw(st.sampled_from([f"{name}_perf" for name in (*OPERATIONS, *OTHERS)]))
    ranks = draw(st.sampled_from([(2,), (8,), (1, 1), (4, 4), (1, 1, 1)]))
    types, reductions = st.sampled_from([*TYPES, "double", "int8"]), st.sampled_from(["sum", "max"])
    keys = st.tuples(types, reductions, st.sampled_from([8, 1024, 1 << 30]))
    rows = draw(st.lists(keys, min_size=1, max_size=6, unique=True).map(sorted))
    return nccl(program, ranks, tuple((*row, draw(TIMES)) for row in rows))


def speed_logs() -> st.SearchStrategy[Log]:
    models, rates = st.sampled_from(["resnet50", "alexnet"]), st.floats(1, 9999)
    modes = st.sampled_from(["training", "training", "evaluation", "forward only"])
    return st.one_of(
        st.builds(tf_cnn, modes, models, rates, st.sampled_from([1, 2, 4])),
        st.builds(horovod, models, st.sampled_from([1, 4, 8]), st.floats(5, 999)),
    )


def published_logs() -> st.SearchStrategy[Log]:
    names, rates = (
        st.sampled_from(["resnet50", "vit_base.augreg_in1k"]),
        st.floats(1, 9999).map(lambda rate: round(rate, 2)),
    )
    times = st.lists(st.integers(1000, 10**7), min_size=1, max_size=3).map(tuple)
    networks, statuses = st.sampled_from(["resnet", "bert"]), st.sampled_from(["success", "success", "aborted"])
    return st.one_of(
        st.builds(mlperf, networks, st.sampled_from([1, 8]), times, statuses),
        st.builds(timm, st.lists(st.tuples(names, rates, st.sampled_from([64, 512])), min_size=1, max_size=4)),
    )


def values(results: Any) -> list[tuple[str, float]]:
    return [(one.case.label, one.seconds if isinstance(one, Exchange) else one.samples_per_second) for one in results]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs") / "slurm-17.out"


@pytest.mark.parametrize(
    "logs", [nccl_logs(), speed_logs(), published_logs()], ids=["exchanges", "speeds", "published"]
)
def test_joined_and_prefixed_logs_give_what_each_gives_by_itself(path: Path, logs: st.SearchStrategy[Log]) -> None:
    @settings(max_examples=150, deadline=None)
    @given(st.lists(st.tuples(CRASHED, logs, PREFIXES, ENDS), min_size=1, max_size=5), CRASHED)
    def holds(parts: list[tuple[str, Log, str, str]], last: str) -> None:
        lines = [
            f"{prefix}{line}{end}" for before, log, prefix, end in parts for line in (before + log.text).splitlines()
        ]
        path.write_text("\n".join([*lines, *last.splitlines()]))
        wanted = sorted(result for _, log, *_ in parts for result in log.results)
        if not wanted:
            with pytest.raises(RequestError, match=r"no operation that|numbers of type|only (trainings|runs)"):
                read(path, None)
            return
        found = read(path, None)
        told = sorted(values(found.results))
        assert [label for label, _ in told] == [label for label, _ in wanted]
        assert [value for _, value in told] == pytest.approx([value for _, value in wanted])
        assert len(found.skipped) == sum(log.skipped for _, log, *_ in parts)
        text = path.read_text().split("\n")
        for one in found.results:
            if one.origin.program == "MLPerf training":
                continue  # it prints times
            told_there = re.findall(r"[\d.]+", text[one.origin.line - 1])
            number = one.bytes if isinstance(one, Exchange) else one.samples_per_second
            assert number in [float(each) for each in told_there if each.strip(".").count(".") < 2 and each.strip(".")]

    holds()


def refused(tmp_path: Path, text: str, name: str = "out.log") -> str:
    (tmp_path / name).write_text(text)
    with pytest.raises(RequestError) as error:
        read(tmp_path / name, None)
    return str(error.value)


ROW = "   2048     512     float     sum      -1    20.00    0.05    0.08      0    20.00    0.05    0.08      0"
CPU = "redop root cputime algbw busbw #wrong cputime algbw busbw #wrong"
OLD = "redop root time algbw busbw error time algbw busbw error"
OTHER_GROUP = nccl().text.replace("Group  0 Pid   47 on   worker-1", "Group  1 Pid   47 on   worker-1")
TWICE = "\n".join(line for line in nccl(ranks=(1,)).text.splitlines() for _ in range(2))
AT_ONCE = tf_cnn().text.replace("Mode:        training", "Mode: training\nDataset: mnist")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (nccl(wrong="4096").text, "line 12: #wrong is 0 and 4096"),
        (nccl(wrong="1e+03").text, "line 12: #wrong is 0 and 1e"),
        (nccl().text + nccl(check="12 FAILED").text, "line 29: the check of the results FAILED"),
        (nccl(ranks=(1,)).text, "line 1: one rank exchanges with nobody; of several processes, nccl-tests was built"),
        (TWICE, "line 10: rank 0 is here twice"),
        (nccl(ranks=(3, 1)).text, "line 1: its hosts have 3, 1 ranks"),
        (OTHER_GROUP, "line 8: groups 0 and 1 exchange at once"),
        (nccl().text.replace("#  Rank  1", "#  Bank  1"), "line 8: ranks are missing up to here"),
        (nccl().text + ROW, "no heading stands before this row"),
        (nccl(rows=(("float", "sum", 8, "1.00"),) * 2).text, "line 13: 8 bytes of float are in another line"),
        (nccl(columns=CPU).text, "line 10: its times are those of the CPU's calls (-C)"),
        (nccl(columns="redop root time algbw busbw #wrong").text, "line 12: this row does not have the columns"),
        (nccl().text.replace("20.00", "2x.00", 1), "line 12: this row does not have the columns"),
        (nccl(columns=OLD).text.replace("Out of bounds", ""), "line 12: no line `Out of bounds values` after it"),
        (nccl(named=False).text, "line 1: nothing says which of all_reduce_perf"),
        (nccl("sendrecv_perf").text, "line 1: sendrecv_perf is no operation that stagebench measures"),
        (tf_cnn("evaluation").text, "line 2: Mode: evaluation; only trainings are imported"),
        (tf_cnn().text + "total images/sec: 990.10\n", "line 14: 2 totals of 1 devices: another run's heading is"),
        (AT_ONCE, "line 5: mnist, and line 3 has imagenet (synthetic): runs were printed at once"),
        (horovod().text + "Total img/sec on 8 GPU(s): 720.0 +-1\n", "line 10: no line `Model:` stands between this"),
        (horovod().text.replace("99.0", "9.0"), "line 9: the parts before it, of 55.0 per GPU in the mean"),
        (horovod().text.replace("on 4 GPU", "on 8 GPU"), "line 9: it is of 8, its heading of 4"),
        (horovod().text.replace("400.0", "nan"), "damaged output of Horovod's synthetic benchmarks"),
    ],
)
def test_what_is_wrong_or_cannot_be_told_is_refused_by_its_line(text: str, says: str, tmp_path: Path) -> None:
    assert says in refused(tmp_path, text)


def test_a_file_s_name_says_which_program_ran_where_no_line_does(tmp_path: Path) -> None:
    text = nccl(named=False).text.replace("# Collective test concluded: all_reduce_perf", "")
    (tmp_path / "all_gather_perf.2.txt").write_text(text)
    found = read(tmp_path / "all_gather_perf.2.txt", None).results
    assert {one.case.collective.operation for one in found} == {"all-gather"}
    both = text + nccl("broadcast_perf").text
    assert "nothing says which" in refused(tmp_path, both, "all_gather_perf.txt"), "the file has several programs"


def test_a_run_of_several_types_reductions_and_roots_is_several_links(tmp_path: Path) -> None:
    rows = tuple((type_, of, size, "20.00") for type_ in ("float", "half") for of in ("sum", "max") for size in (8, 64))
    (tmp_path / "out.log").write_text(nccl(rows=rows).text + nccl("broadcast_perf").text.replace("  -1  ", "   3  "))
    import_([tmp_path / "out.log"], tmp_path / "run", None)
    found = {link.case.label: len(link.points) for link in links(RunFolder.open(tmp_path / "run", None))}
    several = {f"nccl{of} all-reduce{type_}, 4 ranks": 2 for of in ("", " (max)") for type_ in ("", " of float16")}
    assert found == {**several, "nccl (root 3) broadcast, 4 ranks": 1}


def test_the_same_program_twice_is_two_links(tmp_path: Path) -> None:
    (tmp_path / "out.log").write_text(nccl().text + nccl(rows=(("float", "sum", 1024, "99.00"),)).text)
    import_([tmp_path / "out.log"], tmp_path / "run", None)
    found = list(links(RunFolder.open(tmp_path / "run", None)))
    seconds = [[point.seconds for point in link.points] for link in found]
    assert seconds == [[pytest.approx(20e-6)], [pytest.approx(99e-6)]]
    report([tmp_path / "run"], None, False, False)
    page = (tmp_path / "run" / "report" / "index.html").read_text()
    assert "imported: nccl-tests, out.log line 12 · imported: nccl-tests, out.log line 28" in page


def test_messages_that_were_rounded_down_to_nothing_are_no_exchange(tmp_path: Path) -> None:
    rows = (*(("float", "sum", 0, "0.10"),) * 2, ("float", "sum", 64, "9.00"))
    (tmp_path / "out.log").write_text(nccl(rows=rows).text)
    assert [one.bytes for one in read(tmp_path / "out.log", None).results] == [64]


def of_json(program: str = "all_gather_perf", okay: str = "true", wrong: float | None = 0.0, time: str = "time") -> str:
    body = {time: 20.5, "alg_bw": 0.05, "bus_bw": 0.08, "nwrong": wrong}
    result = {"size": 1024, "count": 256, "type": "float", "redop": "none", "root": "    -1"}
    devices = [{"rank": 4 * at, "group": 0, "hostname": host, "device": 0} for at, host in enumerate(HOSTS[:2])]
    content = {
        "version": 3,
        "args": [f"/opt/nccl-tests/{program}", "-J", "out.json"],
        "env": [],
        "nccl_version": 22800,
        "config": {"nthreads": 1, "ngpus": 4, "iterations": 20, "devices": devices},
        "results": [{**result, "out_of_place": body, "in_place": body, "actual_iterations": 20}],
        "out_of_bounds": {"count": 0, "okay": okay},
    }
    return json.dumps(content)


def test_json_is_read_with_all_of_a_process_s_devices(tmp_path: Path) -> None:
    (tmp_path / "out.json").write_text(of_json() + "\n" + of_json("sendrecv_perf") + of_json("alltoall_perf"))
    found = read(tmp_path / "out.json", None)
    assert [label for label, _ in values(found.results)] == ["nccl all-gather, 8 ranks", "nccl all-to-all, 8 ranks"]
    assert [value for _, value in values(found.results)] == pytest.approx([20.5e-6] * 2)
    assert [one.origin.run for one in found.results] == [1, 2]
    assert found.skipped == (
        f"{tmp_path / 'out.json'}: line 2: sendrecv_perf is no operation that stagebench measures; leave it out",
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (of_json(okay="false"), "the check of the results FAILED"),
        (of_json(wrong=12.0), "the result of 1024 bytes has wrong numbers"),
        (of_json(time="cpu_time"), "no time of the exchange out of place"),
        (of_json()[:-3], "no whole output of -J"),
        (of_json() + "rest", "no whole output of -J"),
    ],
)
def test_json_that_is_wrong_or_not_whole_is_refused(text: str, says: str, tmp_path: Path) -> None:
    assert says in refused(tmp_path, text)


def test_what_is_skipped_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out.log").write_text(tf_cnn().text + tf_cnn("evaluation", rate=990.1).text)
    import_([tmp_path / "out.log"], tmp_path / "run", None)
    told = capsys.readouterr()
    assert "1 foreign results" in told.out
    assert f"skipped: {tmp_path / 'out.log'}: line 15: Mode: evaluation; only trainings are imported" in told.err
