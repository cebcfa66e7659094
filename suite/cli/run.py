"""`stagebench run`: measure a plan, or what options describe.

Heavy imports wait until the command runs, so that --help is quick.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from stagebench.suite.cli.options import (
    REPORT_FOLLOWS,
    OfRun,
    Pythons,
    Retry,
    hosts_from,
    interpreters_from,
    knobs_from,
)
from stagebench.suite.cli.output import put, say
from stagebench.suite.errors import RequestError
from stagebench.suite.text import duration

if TYPE_CHECKING:
    from stagebench.suite.plan import Plan


MANY = 1000  # cases: checking more takes seconds


def run(
    context: typer.Context,
    plan: Annotated[
        str | None, typer.Argument(help="A ready-made plan's name (`stagebench list plans`) or a TOML file.")
    ] = None,
    output: OfRun = None,
    scale: Annotated[
        str | None, typer.Option(help="One of the plan's scales: `small` is a few minutes on two cores.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Another value than the plan's: sampling.steps=5, batch=[8]."),
    ] = None,
    adapter: Annotated[str | None, typer.Option(help="Names, with commas between: `stagebench list adapters`.")] = None,
    workload: Annotated[
        str | None,
        typer.Option(help="A name, or a file: Python that uses the builder, or JSON."),
    ] = None,
    strategy: Annotated[str | None, typer.Option(help="(default: the adapter's first that fits)")] = None,
    batch: Annotated[str | None, typer.Option(help="Samples per device.")] = None,
    ranks: Annotated[str | None, typer.Option(help="Per node.")] = None,
    nodes: Annotated[str | None, typer.Option(help="See --hosts.")] = None,
    devices: Annotated[str | None, typer.Option(help="Per rank.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda.")] = None,
    threads: Annotated[str | None, typer.Option(help="Per device.")] = None,
    data: Annotated[str | None, typer.Option(help="synthetic, real, a set's name or a path.")] = None,
    readers: Annotated[str | None, typer.Option(help="Processes or threads that decode, per rank.")] = None,
    precision: Annotated[str | None, typer.Option(help="float32, bfloat16, ...")] = None,
    tuning: Annotated[str | None, typer.Option(help="default or tuned.")] = None,
    optimiser: Annotated[str | None, typer.Option(help="sgd, adam or adamw.")] = None,
    passes: Annotated[str | None, typer.Option(help="native,staged,...")] = None,
    processes: Annotated[str | None, typer.Option(help="Processes that measure each case.")] = None,
    steps: Annotated[str | None, typer.Option(help="Steps of a pass, at least.")] = None,
    seconds: Annotated[str | None, typer.Option(help="Seconds of a pass, at least.")] = None,
    knob: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="Repeatable.")] = None,
    print_plan: Annotated[bool, typer.Option("--print-plan", help="Print the plan and start nothing.")] = False,
    hosts: Annotated[
        str | None,
        typer.Option(help="A,B,...: hosts of the cases that name none; one on n nodes takes the first n."),
    ] = None,
    launcher: Annotated[
        str, typer.Option(help="Starts the cases whose launcher the plan leaves open: `stagebench list launchers`.")
    ] = "auto",
    python: Pythons = None,
    proofs: Annotated[bool, typer.Option(help="Prove each case before measuring it; rows without are marked.")] = True,
    retry: Retry = False,
    until: Annotated[
        str | None,
        typer.Option(metavar="N%", help="Go on until every comparison shows a difference, or is known to ±N %."),
    ] = None,
    for_: Annotated[
        str | None,
        typer.Option("--for", metavar="TIME", help="Measure for so long, such as 20min: no process starts later."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the outcome counts as JSON, and nothing else.")] = False,
) -> None:
    """Measure every case of a plan, or of what options describe: proofs first, then interleaved rounds of processes.

    Stop it at any time: the same command resumes it.
    """
    import json as encoder
    import sys

    from stagebench.suite.analysis.leaders import open_cases
    from stagebench.suite.cli.display import Display
    from stagebench.suite.cli.measuring import conclude, warn
    from stagebench.suite.cli.results import print_results
    from stagebench.suite.plan import resolve
    from stagebench.suite.plan.networks import registered
    from stagebench.suite.plugins import adapters, launchers, workloads
    from stagebench.suite.results.run_folder import RunFolder
    from stagebench.suite.session.end_rule import end_rule
    from stagebench.suite.session.measure import measure_plan, run_folder
    from stagebench.suite.session.observer import Observer
    from stagebench.suite.session.resumable import Settings

    end = end_rule(until, for_)
    loaded = registered(_plan(context, plan, scale, knob or [], set_ or []))
    resolved = resolve(loaded, adapters(), launchers(), workloads(), hosts_from(hosts), launcher, _say_how_many)
    if print_plan:
        put(loaded.text, nl=False)
        return
    folder = RunFolder(output or run_folder(loaded.name, scale))
    observer = Observer() if json else Display()
    settings = Settings(proofs, retry, scale, end, open_cases)
    interpreters = interpreters_from(python or [])
    outcomes = measure_plan(loaded, resolved, folder, observer, settings, warn, sys.argv, interpreters, plan)
    if json:
        put(encoder.dumps({"folder": str(folder.path), "outcomes": outcomes}))
    else:
        print_results(folder, reasons=False)  # printed as they came
    conclude(folder.path, outcomes, quiet=json, last=context.find_root().obj != REPORT_FOLLOWS)


def _say_how_many(cases: int, seconds: float) -> None:
    """At once, for a plan whose checking takes its time."""
    if cases >= MANY:
        say(f"{cases:,} cases, of {duration(seconds)} at least; checking them", err=True)


def _plan(context: typer.Context, name: str | None, scale: str | None, knobs: list[str], sets: list[str]) -> "Plan":
    """The plan that is named, or the one that options describe; RequestError where it is both or neither."""
    from stagebench.suite.plan import load
    from stagebench.suite.plan.model import Block
    from stagebench.suite.plan.options import SAMPLING, plan_of
    from stagebench.suite.plan.overrides import overrides_from
    from stagebench.suite.plugins import adapters, workloads

    keys = [key for key in (*Block.model_fields, *SAMPLING) if key not in ("hosts", "launcher", "knobs")]
    described = {key: context.params[key] for key in keys if context.params.get(key) is not None}
    overrides = overrides_from(sets)
    if name is not None:
        for key in [*described, *(f"knobs.{knob.partition('=')[0]}" for knob in knobs)]:
            option = "knob" if key.startswith("knobs.") else key
            asked = f"sampling.{key}" if key in SAMPLING else key
            raise RequestError(
                f"--{option} describes a case in place of a plan, and {name!r} is a plan; to change the plan's value "
                f"write --set {asked}=VALUE"
            )
        return load(name, scale, overrides)
    if not described:
        raise RequestError(
            "name a plan (`stagebench list plans`) or describe the cases, such as "
            f"--adapter {','.join(list(adapters())[:2])} --workload {next(iter(workloads()))} --batch 64"
        )
    if scale is not None:
        raise RequestError(f"--scale {scale} is a profile of a plan, and no plan is named; leave it out")
    return plan_of(described, knobs_from(knobs), adapters(), overrides)
