"""Loads as MLPerf's LoadGen logs them: the keys and words of its loadgen/results.cc and test_settings_internal.cc.

A folder a load of a process, of the load `server` a rate; its tries are one. Only what was measured is written, and no
`result_validity`: LoadGen's valid tests last ten minutes.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from stagebench.reports.site.build import made
from stagebench.suite.analysis.latency import PERCENTILES, bound, passes
from stagebench.suite.analysis.measured import Process, process_of
from stagebench.suite.analysis.serving import AtRate, served
from stagebench.suite.contracts.case import Case
from stagebench.suite.errors import RequestError
from stagebench.suite.files import file_name, write_whole
from stagebench.suite.results.records import Record
from stagebench.suite.results.run_folder import RunFolder
from stagebench.suite.worker.homes import without_homes
from stagebench.suite.worker.pass_kinds import BY_NAME, LOADS, MULTI_STREAM, OFFLINE, SERVER, SINGLE_STREAM

Values = dict[str, str | int | float | bool]
SCENARIOS = {OFFLINE: "Offline", SINGLE_STREAM: "SingleStream", MULTI_STREAM: "MultiStream", SERVER: "Server"}
SHARES = (0.5, 0.9, 0.95, 0.97, 0.99, 0.999)
RULE = "=" * 48
SUMMARY = {  # the words of a key in the summary; those of one that is missing are left out
    "MLPerf Results Summary": {
        "sut_name": "SUT name : ",
        "effective_scenario": "Scenario : ",
        "effective_test_mode": "Mode     : ",
        "result_samples_per_second": "Samples per second: ",
        "result_completed_samples_per_sec": "Completed samples per second    : ",
        "result_perf_constraints_met": "  Performance constraints satisfied : ",
        "early_stopping_met": "  Early stopping satisfied: ",
    },
    "Additional Stats": {
        "result_qps_with_loadgen_overhead": "QPS w/ loadgen overhead         : ",
        "result_qps_without_loadgen_overhead": "QPS w/o loadgen overhead        : ",
        "result_min_latency_ns": "Min latency (ns)                : ",
        "result_max_latency_ns": "Max latency (ns)                : ",
        "result_mean_latency_ns": "Mean latency (ns)               : ",
        **{
            f"result_{100 * at:.2f}_percentile_latency_ns": f"{100 * at:.2f} percentile latency (ns)   : "
            for at in SHARES
        },
    },
    "Test Parameters Used": {
        "effective_samples_per_query": "samples_per_query : ",
        "effective_target_qps": "target_qps : ",
        "effective_target_latency_ns": "target_latency (ns): ",
    },
}


class Log(NamedTuple):
    """A load of a process, by the keys of LoadGen's details."""

    folder: str
    values: Values


def as_loadgen(folder: RunFolder, directory: Path) -> None:
    """Write mlperf_log_summary.txt and mlperf_log_detail.txt of each load; RequestError without one."""
    logs = [log for record in folder.records() if record.result == "ok" for log in _logs(record)]
    if not logs:
        raise RequestError(
            f"{folder.path} has no load that LoadGen logs: no case infers, or the generator was late at every rate; "
            "run the plan `inference`"
        )
    for name, values in logs:
        place = made(directory / name)
        write_whole(place / "mlperf_log_detail.txt", "".join(map(_line, values.items())))
        write_whole(place / "mlperf_log_summary.txt", _summary(values))


def _line(entry: tuple[str, object]) -> str:
    metadata = {"is_error": False, "is_warning": False, "file": "stagebench", "line_no": 0, "pid": 0, "tid": 0}
    own = {"key": entry[0], "value": entry[1], "time_ms": 0.0, "namespace": "mlperf::logging"}
    return f":::MLLOG {json.dumps({**own, 'event_type': 'POINT_IN_TIME', 'metadata': metadata})}\n"


def _summary(values: Values) -> str:
    lines = []
    for title, words in SUMMARY.items():
        lines += [RULE, title, RULE]
        for key, name in words.items():
            if key in values:
                value = values[key]
                lines.append(f"{name}{({True: 'Yes', False: 'NO'}[value]) if isinstance(value, bool) else value}")
        lines.append("")
    return "\n".join(lines)


def _logs(record: Record) -> Iterator[Log]:
    case, process = record.case, process_of(record, record.method)
    name = f"{file_name(case.adapter, case.workload)}-{record.case_id}-r{record.repeat}"
    for load in LOADS:
        if load in process.passes and load != SERVER:
            yield Log(f"{name}/{load}", _common(case, load, record.started) | _of_load(case, process, load))
    found = served({process.round: (process.tries, process.model_server)}) if process.tries else None
    for at in found.first if found else ():
        yield Log(f"{name}/{SERVER}-{at.rate:.4g}", _common(case, SERVER, record.started) | _at_rate(case, at))


def _common(case: Case, load: str, started: str) -> Values:
    return {
        "test_datetime": started,
        "sut_name": without_homes(case.label),
        "effective_scenario": SCENARIOS[load],
        "effective_test_mode": "PerformanceOnly",
        "effective_samples_per_query": 1 if load == SERVER else BY_NAME[load].query or case.batch,
    }


def _of_load(case: Case, process: Process, load: str) -> Values:
    if load == OFFLINE:
        return {"result_samples_per_second": case.batch / process.passes[load]}
    seconds = np.asarray(process.latencies[load])
    estimates = {share: bound(seconds, share) for share in PERCENTILES[load]}
    values: Values = {"early_stopping_met": estimates[PERCENTILES[load][0]] is not None, **_latencies(seconds)}
    if load == SINGLE_STREAM:
        values["result_qps_with_loadgen_overhead"] = 1 / process.passes[load]
        values["result_qps_without_loadgen_overhead"] = 1 / float(seconds.mean())
    for share, key in ((0.9, "early_stopping_latency_ss"), (0.99, "early_stopping_latency_ms")):
        if found := estimates.get(share):
            values[key] = _ns(found)
    return values


def _at_rate(case: Case, at: AtRate) -> Values:
    rule, seconds = case.serving, at.latencies
    limit = rule.bound_ms / 1000
    late = int(np.count_nonzero(seconds > limit))
    answers = int(np.count_nonzero(np.isfinite(seconds)))
    return {
        "effective_target_qps": at.rate,
        "effective_target_latency_ns": _ns(limit),
        "effective_target_latency_percentile": rule.bound_share,
        "result_perf_constraints_met": bool(_plain(seconds, rule.bound_share) <= limit) and not at.saturated,
        "early_stopping_met": passes(len(seconds), late, rule.bound_share) and not at.saturated,
        "result_overlatency_query_count": late,
        "result_completed_samples_per_sec": answers / sum(each.wall_s for each in at.tries),
        **_latencies(seconds),
    }


def _latencies(seconds: np.ndarray) -> Values:
    """Return LoadGen's figures of latencies; none that a query without an answer makes infinite."""
    found = {"min": seconds.min(), "max": seconds.max(), "mean": seconds.mean()}
    named = {f"result_{name}_latency_ns": float(value) for name, value in found.items()}
    named |= {f"result_{100 * share:.2f}_percentile_latency_ns": _plain(seconds, share) for share in SHARES}
    known = {name: _ns(value) for name, value in named.items() if math.isfinite(value)}
    return {"result_query_count": len(seconds), **known}


def _plain(seconds: np.ndarray, share: float) -> float:
    return float(np.sort(seconds)[int(len(seconds) * share)])


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
