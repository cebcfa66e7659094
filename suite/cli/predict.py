"""`stagebench predict`: what a training would do on machines that one does not have.

Heavy imports wait until the command runs, so that --help is quick.
"""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from suite.errors import RequestError

if TYPE_CHECKING:
    from suite.predict.answer import Answer
    from suite.predict.collectives import Link, Network
    from suite.predict.from_numbers import Numbers
    from suite.predict.known_link import KnownLink
    from suite.predict.prediction import Prediction

COLUMNS = ("ranks", "schedule", "samples/s", "95 % interval", "ms/step", "efficiency", "exposed ms")
COMPARED = ("measured", "error")
WORTH_A_LINE = 0.001  # of a gain


def register(app: typer.Typer) -> None:
    app.command()(predict)


def predict(
    run: Annotated[Path | None, typer.Argument(help="A run folder to fit to; without one, give the numbers.")] = None,
    ranks: Annotated[str, typer.Option(help="A,B,...: how many devices, each a rank.")] = "2,4,8,16,32",
    schedule: Annotated[
        str | None,
        typer.Option(
            help="When gradients leave: sequential, fused, wfbp, buckets, merged, priority; several as A,B,... or all. "
            "Default: wfbp; of a run what comes nearest to it."
        ),
    ] = None,
    algorithm: Annotated[
        str, typer.Option(help="Of the exchange: ring, tree, doubling, halving, hierarchical or server.")
    ] = "ring",
    workload: Annotated[
        str | None, typer.Option(help="A workload, or a network's file; of a run: only this one.")
    ] = None,
    layers: Annotated[
        Path | None, typer.Option(help="A JSON list of layers with their seconds, instead of a workload and --rate.")
    ] = None,
    batch: Annotated[int | None, typer.Option(help="Samples per device.")] = None,
    rate: Annotated[float | None, typer.Option(help="Samples/s of one device by itself.")] = None,
    alpha: Annotated[float | None, typer.Option(help="Seconds to begin a message.")] = None,
    beta: Annotated[float | None, typer.Option(help="Seconds a byte.")] = None,
    gamma: Annotated[float, typer.Option(help="Seconds to add up a byte.")] = 0.0,
    ranks_per_node: Annotated[int, typer.Option(help="Ranks on a node.")] = 1,
    node_alpha: Annotated[float | None, typer.Option(help="Within a node; default: as between nodes.")] = None,
    node_beta: Annotated[float | None, typer.Option(help="Within a node; default: as between nodes.")] = None,
    servers: Annotated[int, typer.Option(help="Parameter servers, of the algorithm `server`.")] = 1,
    comm: Annotated[Path | None, typer.Option(help="A run of `stagebench comm` that has measured the link.")] = None,
    backend: Annotated[str | None, typer.Option(help="Whose link, where --comm has several.")] = None,
    read_rate: Annotated[float | None, typer.Option(help="Samples/s of one reader; default: no waiting.")] = None,
    readers: Annotated[int | None, typer.Option(help="Readers of each device.")] = None,
    jitter: Annotated[
        float | None, typer.Option(help="Standard deviation of a rank's iterations, relative to their mean.")
    ] = None,
    spread: Annotated[
        float | None, typer.Option(help="How far --rate may be off, relative: its interval's half width.")
    ] = None,
    compression: Annotated[float, typer.Option(help="How many times smaller than float32 gradients are.")] = 1.0,
    stages: Annotated[int, typer.Option(help="Devices that hold one network together, as a pipeline.")] = 1,
    microbatches: Annotated[int, typer.Option(help="Pieces in which a pipeline takes its batch.")] = 1,
    trace: Annotated[
        Path | None, typer.Option(help="Write the timeline of the most ranks for Perfetto (ui.perfetto.dev).")
    ] = None,
    chakra: Annotated[
        Path | None,
        typer.Option(
            metavar="PREFIX", help="Write PREFIX.RANK.et for the most ranks: Chakra execution traces, for ASTRA-sim."
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the predictions as JSON, and nothing else.")] = False,
) -> None:
    """Predict the speed of synchronous training on more ranks, and what would help most."""
    from suite.cli.tables import show_json
    from suite.predict import from_numbers
    from suite.predict.answer import Answer
    from suite.predict.collectives import Link, Network

    sizes = ranks_from(ranks)
    within = _link(node_alpha, node_beta, gamma, "--node-")
    network = Network(Link(0.0, 0.0), within, ranks_per_node, algorithm, servers)
    link = _known_link(_link(alpha, beta, gamma, "--"), comm, backend, network)
    numbers = from_numbers.Numbers(batch, rate, workload, layers, read_rate, readers, jitter, spread)
    if run is None:
        asked = [from_numbers.asked(numbers, network, link)]
    else:
        from suite.predict.from_run import asked_of
        from suite.results.run_folder import RunFolder

        _only_without_a_run(run, numbers)
        asked = asked_of(RunFolder.open(run), workload, network, link, schedule is None)
    answers = []
    for one in asked:
        default = "fused" if stages > 1 else one.scenario.schedule
        changes = {"schedule": default, "compression": compression, "stages": stages, "microbatches": microbatches}
        one = replace(one, scenario=one.scenario.but(**changes))
        answers.append(Answer(one, _schedules(schedule, default), sizes))
    if trace:
        _write_trace(trace, answers[0])
    if chakra:
        _write_chakra(chakra, answers[0])
    if json:
        show_json([one.to_dict() for one in answers])
    else:
        for found in answers:
            _print(found)


def ranks_from(option: str) -> list[int]:
    """`--ranks A,B,...` as a list; RequestError for what is no number of ranks."""
    words = [word.strip() for word in option.split(",")]
    if not all(word.isdecimal() and int(word) for word in words):
        raise RequestError(f"--ranks {option!r} should read A,B,...: numbers from 1, such as 2,4,8")
    return [int(word) for word in words]


def _link(alpha: float | None, beta: float | None, gamma: float, prefix: str) -> "Link | None":
    from suite.predict.collectives import Link

    if alpha is None and beta is None:
        return None
    if alpha is None or beta is None:
        there, missing = ("beta", "alpha") if alpha is None else ("alpha", "beta")
        raise RequestError(f"{prefix}{there} is given without {prefix}{missing}; a link has both")
    return Link(alpha, beta, gamma)


def _known_link(given: "Link | None", comm: Path | None, backend: str | None, network: "Network") -> "KnownLink | None":
    from suite.predict.known_link import KnownLink

    if comm is None:
        return KnownLink(given, 0.0, "link: as given") if given else None
    if given:
        raise RequestError("--comm and --alpha both say what the link is; leave one of them out")
    from suite.comm.records import CommFolder
    from suite.predict.from_comm import of_comm

    return of_comm(CommFolder.open(comm), backend, network)


def _only_without_a_run(run: Path, numbers: "Numbers") -> None:
    for name, value in vars(numbers).items():
        if name != "workload" and value is not None:
            raise RequestError(f"--{name.replace('_', '-')} says what {run} has measured; leave one of them out")


def _schedules(option: str | None, default: str) -> list[str]:
    from suite.predict.scenario import SCHEDULES

    return [default] if option is None else list(SCHEDULES) if option == "all" else option.split(",")


def _write_trace(path: Path, answer: "Answer") -> None:
    import json

    from suite.files import write_whole
    from suite.predict.perfetto import trace
    from suite.predict.prediction import timeline

    last = answer.predictions[-1]
    line = timeline(answer.asked.scenario.but(schedule=last.schedule), last.ranks)
    write_whole(path, json.dumps(trace(line)) + "\n")


def _write_chakra(prefix: Path, answer: "Answer") -> None:
    from suite.predict import chakra

    last = answer.predictions[-1]
    chakra.write(prefix, answer.asked.scenario.but(schedule=last.schedule), last.ranks)


def _print(answer: "Answer") -> None:
    from suite.cli import tables

    shown = (*COLUMNS, *COMPARED) if answer.asked.measured else COLUMNS
    tables.show([_cells(answer, one) for one in answer.predictions], shown, answer.asked.label)
    for source in answer.asked.sources:
        typer.echo(f"  {source}")
    last = answer.predictions[-1]
    typer.echo(f"critical path on {last.ranks} ranks, {last.schedule}: {last.critical_path}")
    gains = [gain for gain in answer.gains if gain.gain > WORTH_A_LINE]
    typer.echo(f"what would help most there:{'' if gains else ' nothing that the model knows'}")
    for gain in gains:
        typer.echo(f"  {gain.gain:+.1%}  {gain.change}")


def _cells(answer: "Answer", one: "Prediction") -> dict[str, Any]:
    from suite.cli.formatting import significant

    measured, error, (low, high) = answer.asked.measured.get(one.ranks), answer.error(one), one.rates
    return {
        "ranks": one.ranks,
        "schedule": one.schedule,
        "samples/s": significant(one.rate),
        "95 % interval": f"{significant(low)} to {significant(high)}" if low < high else "",
        "ms/step": significant(1000 * one.iteration),
        "efficiency": f"{one.efficiency:.1%}",
        "exposed ms": significant(1000 * one.exposed),
        "measured": significant(measured.value) if measured else "",
        "error": "" if error is None else "fitted" if one.ranks == answer.asked.fitted_to else f"{error:+.1%}",
    }
