"""`stagebench list`: the installed adapters, workloads, strategies, launchers, model servers, plans and more."""

import shutil
import sys
from typing import TYPE_CHECKING, Any

import typer

from stagebench.suite.cli.options import Json
from stagebench.suite.cli.output import Row, show_rows
from stagebench.suite.contracts.adapter import KINDS, Adapter
from stagebench.suite.contracts.launcher import starters
from stagebench.suite.errors import StagebenchError
from stagebench.suite.plugins import adapters, launchers, model_servers, workloads

if TYPE_CHECKING:
    from stagebench.suite.processes.interpreters import Needs

WIDE = 100  # columns of a terminal that hold all that a table has
group = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="List adapters, workloads, strategies, formats, launchers, backends, model servers or plans.",
)


@group.command("adapters")
def list_adapters(as_json: Json = False) -> None:
    """List the frameworks that can be measured."""
    rows = [adapter_row(adapter) for adapter in adapters().values()]
    show_rows(rows, ("name", "title", "strategies", "devices", "knobs"), as_json=as_json)


@group.command("workloads")
def list_workloads(as_json: Json = False) -> None:
    """List the networks, with parameters, multiply-accumulates and gradient bytes."""
    rows: list[Row] = []
    for workload in workloads().values():
        graph = workload.graph()
        rows.append(
            {
                "name": workload.name,
                "input": "x".join(map(str, graph.input_shape)),
                "parameters": graph.parameter_count,
                "macs": graph.macs,
                "gradient_bytes": graph.gradient_bytes(),
                "layers": len(graph.layers),
                "dataset": workload.dataset,
                "source": workload.source,
                "digest": graph.digest,
            }
        )
    for row in [] if as_json else rows:
        row.update({"GMACs": f"{row['macs'] / 1e9:.4f}", "gradient MB": f"{row['gradient_bytes'] / 1e6:.2f}"})
    show_rows(rows, ("name", "input", "parameters", "GMACs", "gradient MB", "dataset", "source"), as_json=as_json)


@group.command("strategies")
def list_strategies(as_json: Json = False) -> None:
    """How each adapter can spread a training."""
    rows = [
        {
            "adapter": adapter.name,
            "strategy": strategy.name,
            "over": [*["ranks"] * strategy.distributed, *["devices"] * strategy.several_devices],
            "distributed": strategy.distributed,
            "several_devices": strategy.several_devices,
            "synchronous": strategy.synchronous,
            "launchers": list(starters(strategy, launchers())),
            "stages": list(strategy.separable),
            "help": strategy.help,
        }
        for adapter in adapters().values()
        for strategy in adapter.capabilities.strategies
    ]
    # A narrow terminal keeps what tells strategies apart; --json has everything.
    wide = ("launchers",) if not sys.stdout.isatty() or shutil.get_terminal_size().columns >= WIDE else ()
    show_rows(rows, ("adapter", "strategy", "over", "synchronous", *wide, "help"), as_json=as_json)


@group.command("formats")
def list_formats(as_json: Json = False) -> None:
    """The record formats that frameworks' own readers take; `stagebench data convert` packs them."""
    rows = [
        {
            "format": form.name,
            "adapter": adapter.name,
            "holds": [KINDS[kind] for kind in form.kinds],
            "whole": form.whole,
            "ordered": form.ordered,
            "scaling": form.scaling,
            "help": form.help,
        }
        for adapter in adapters().values()
        for form in adapter.capabilities.formats
    ]
    show_rows(rows, ("format", "adapter", "holds", "whole", "ordered", "help"), as_json=as_json)


@group.command("launchers")
def list_launchers(as_json: Json = False) -> None:
    """List the launchers, and whether each uses MPI and starts ranks on several hosts."""
    rows: list[Row] = [
        {
            "name": item.name,
            "several hosts": item.several_hosts,
            "chooses hosts": item.chooses_hosts,
            "mpi": item.mpi,
            "title": item.title,
        }
        for item in launchers().values()
    ]
    show_rows(rows, ("name", "several hosts", "chooses hosts", "mpi", "title"), as_json=as_json)


@group.command("backends")
def list_backends(as_json: Json = False) -> None:
    """List the backends that `stagebench comm` measures, and whether each is installed here."""
    from stagebench.suite.plan.collectives import offers

    rows: list[Row] = []
    for offer in offers().values():
        backend, problem = offer.backend, problem_of(offer.needs)
        rows.append(
            {
                "backend": backend.name,
                "adapter": offer.adapter.name,
                "device": backend.device,
                "operations": list(backend.operations),
                "types": list(backend.dtypes),
                "here": not problem,
                "problem": problem,
                "help": backend.help,
            }
        )
    show_rows(rows, ("backend", "adapter", "device", "here", "operations", "types", "help"), as_json=as_json)


@group.command("model-servers")
def list_model_servers(as_json: Json = False) -> None:
    """List the model servers that the load `server` may be behind, and whether each is installed here."""
    rows: list[Row] = [
        {
            "name": server.name,
            "title": server.title,
            "here": not (problem := problem_of(server)),
            "problem": problem,
            "protocol": server.protocol,
            "batches": server.batches,
            "elsewhere": not server.program,
            "options": {name: {"default": knob.default, "help": knob.help} for name, knob in server.options.items()},
            "telemetry off by": [f"{name}={value}" for name, value in server.environ.items()],
            "environment": server.environment,
            "help": server.help,
        }
        for server in model_servers().values()
    ]
    show_rows(rows, ("name", "here", "protocol", "batches", "help"), as_json=as_json)


@group.command("plans")
def list_plans(as_json: Json = False) -> None:
    """List the ready-made plans; `stagebench run NAME` runs one, `--scale SCALE` a smaller version of it."""
    from stagebench.suite.plan import load, ready_made

    plans = [load(path) for path in ready_made().values()]
    rows: list[Row] = [
        {"name": plan.name, "scales": list(plan.scales), "title": plan.title, "file": str(plan.file)} for plan in plans
    ]
    show_rows(rows, ("name", "scales", "title", "file"), as_json=as_json)


def problem_of(needs: "Needs") -> str:
    """Return why no interpreter here has what something needs; "": one has."""
    from stagebench.suite.processes.interpreters import find

    try:
        find(needs)
    except StagebenchError as error:
        return str(error)
    return ""


def adapter_row(adapter: Adapter) -> Row:
    """Return everything that an adapter declares."""
    able = adapter.capabilities
    knobs: dict[str, Any] = {
        name: {"values": _values(knob.values), "default": knob.default, "help": knob.help}
        for name, knob in able.knobs.items()
    }
    return {
        "name": adapter.name,
        "title": adapter.title,
        "strategies": [strategy.name for strategy in able.strategies],
        "devices": list(able.devices),
        "precisions": list(able.all_precisions()),
        "tunings": list(able.tunings),
        "optimisers": list(able.optimisers),
        "formats": ["files", *(form.name for form in able.formats)] if able.real_data else [],
        "knobs": knobs,
        "environment": adapter.environment,
        "requires": list(adapter.requires),
    }


def _values(values: "tuple[Any, ...] | type") -> Any:
    if isinstance(values, type):
        return values.__name__
    return [value.__name__ if isinstance(value, type) else value for value in values]
