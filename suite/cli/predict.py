"""`stagebench predict`: what a training would do on machines that one does not have.

Heavy imports wait until the command runs, so that --help is quick.
"""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from suite.cli.say import say
from suite.errors import RequestError

if TYPE_CHECKING:
    from suite.predict.answer import Answer, Asked
    from suite.predict.collectives import Link, Network
    from suite.predict.from_numbers import Numbers
    from suite.predict.known_link import KnownLink
    from suite.predict.prediction import Prediction

COLUMNS = ("ranks", "schedule", "samples/s", "95 % interval", "ms/step", "efficiency", "exposed ms")
COMPARED = ("measured", "error")
WORTH_A_LINE = 0.001  # of a gain
MOST_FILES = 4096  # of execution traces


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
        str | None,
        typer.Option(help="Of the exchange: ring (default), tree, doubling, halving, hierarchical or server."),
    ] = None,
    workload: Annotated[
        str | None, typer.Option(help="A workload, or a network's file; of a run: only this one, by its name.")
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
    microbatches: Annotated[
        int | None,
        typer.Option(help="Pieces in which a pipeline takes its batch; default: 1, or as many as the run's."),
    ] = None,
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
    _needed(
        "--node-alpha and --node-beta", (node_alpha, node_beta) != (None, None), "--ranks-per-node", ranks_per_node > 1
    )
    _needed("--algorithm hierarchical", algorithm == "hierarchical", "--ranks-per-node", ranks_per_node > 1)
    _needed("--servers", servers != 1, "--algorithm server", algorithm == "server")
    _needed("--microbatches", microbatches is not None, "--stages", stages > 1)
    _needed("--backend", backend is not None, "--comm", comm is not None)
    _needed("--gamma", gamma != 0.0, "--alpha and --beta", alpha is not None)
    _writable(trace=trace, chakra=chakra)
    within = _link(node_alpha, node_beta, gamma, "--node-")
    network = Network(Link(0.0, 0.0), within, ranks_per_node, algorithm or "ring", servers)
    link = _known_link(_link(alpha, beta, gamma, "--"), comm, backend, network)
    if link and ranks_per_node > 1:
        network = replace(network, within=within or link.within)
    numbers = from_numbers.Numbers(batch, rate, workload, layers, read_rate, readers, jitter, spread)
    pipeline = {"compression": compression, "stages": stages, "microbatches": microbatches}
    refusals: list[str] = []
    if run is None:
        _needed("--readers", readers is not None, "--read-rate", read_rate is not None)
        asked = [from_numbers.asked(numbers, network, link)]
        pipeline["microbatches"] = 1 if microbatches is None else microbatches
        asked = [replace(one, scenario=one.scenario.but(**_pipeline(stages), **pipeline)) for one in asked]
    else:
        from suite.predict.from_run import asked_of
        from suite.results.run_folder import RunFolder

        _only_without_a_run(run, numbers)
        asked, refusals = asked_of(RunFolder.open(run), workload, link)
        asked = [_what_if(one, network if algorithm or ranks_per_node > 1 else None, link, pipeline) for one in asked]
    every = [Answer(one, _schedules(schedule, one), [size for size in sizes if not one.refusal(size)]) for one in asked]
    answers = [answer for answer in every if answer.sizes and answer.schedules]
    refusals += [f"{one.asked.label}: its gradients leave after backward, fused." for one in every if not one.schedules]
    refusals += [
        f"{one.label} on {size} rank{'s' if size > 1 else ''}: {refusal}."
        for one in asked
        for size in sizes
        if (refusal := one.refusal(size))
    ]
    if not answers:
        raise RequestError(f"nothing can be predicted: {' '.join(refusals)}")
    if json:
        show_json([one.to_dict() for one in answers])
    else:
        _print(answers)
    for refusal in refusals:
        say(f"not predicted: {refusal}", err=True)
    if trace:
        _write_trace(trace, answers)
    if chakra:
        _write_chakra(chakra, answers)


def _writable(**places: Path | None) -> None:
    for option, path in places.items():
        if path and not path.parent.is_dir():
            raise RequestError(f"--{option} {path}: there is no folder {path.parent}; make it, or name another place")


def _needed(option: str, given: bool, other: str, there: bool) -> None:
    if given and not there:
        raise RequestError(f"{option} says nothing without {other}; give both, or neither")


def _pipeline(stages: int) -> dict[str, Any]:
    """What a pipeline has no choice of: its gradients leave last, when nothing computes beside them."""
    return {"schedule": "fused", "interference": 0.0} if stages > 1 else {}


def _what_if(asked: "Asked", network: "Network | None", link: "KnownLink | None", pipeline: dict[str, Any]) -> "Asked":
    """The training of a run with what the options change of it; `link` may be what it was fitted to."""
    from suite.predict.collectives import positive

    own, changed, error = asked.scenario.network, [], asked.scenario.link_error
    if link and link.source not in asked.sources:
        own, error = replace(own, between=link.link), link.error
        changed.append(link.source)
    if network:
        own = replace(network, between=own.between, within=network.within or own.within)
        nodes = f", {own.ranks_per_node} ranks a node" if own.ranks_per_node > 1 else ""
        changed.append(f"exchange: {own.algorithm}{nodes}")
    if pipeline["compression"] != 1:
        changed.append(f"gradients: {pipeline['compression']:g} times smaller")
    stages, pieces, compression = pipeline["stages"], pipeline["microbatches"], pipeline["compression"]
    held = asked.pipelines
    parts: dict[str, Any] = {"network": own, "link_error": error, "compression": compression}
    if stages > 1 and held:
        if not (asked.link_known or link):
            raise RequestError(
                f"nothing says how fast the link of {asked.label} is, by which pipelines exchange gradients; give "
                "--alpha and --beta, or --comm, or leave --stages out"
            )
        count = replace(held, stages=stages).pieces(stages) if pieces is None else Fraction(pieces)
        positive("number of microbatches", float(count))
        changed.append(f"pipelines of {stages} stages and {count} microbatch{'es' if count != 1 else ''}")
        asked = replace(asked, pipelines=replace(held, stages=stages, microbatches=count, by_stage=False, known={}))
        parts["holds_back"] = True
    elif stages > 1:
        changed.append(f"a pipeline of {stages} stages, without the fitted schedule and interference")
        parts |= {"stages": stages, "microbatches": pieces or 1, **_pipeline(stages)}
    return asked.changed(changed, **parts) if changed else asked


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
        raise RequestError(f"{prefix}{there} is given without {prefix}{missing}; give both, or none")
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


def _schedules(option: str | None, asked: "Asked") -> list[str]:
    from suite.predict.scenario import SCHEDULES
    from suite.suggest import known

    if option in (None, "all"):
        return list(SCHEDULES) if option and not asked.pipelines else [asked.scenario.schedule]
    words = [word.strip() for word in option.split(",")]
    if not all(words):
        raise RequestError(f"--schedule {option!r} should read A,B,...: schedules such as wfbp,merged, or all")
    for word in words:
        if word not in SCHEDULES:
            raise RequestError(f"there is no schedule {word!r}; {known(word, SCHEDULES)}")
    return [word for word in words if word == asked.scenario.schedule] if asked.pipelines else words


def _write_trace(path: Path, answers: Sequence["Answer"]) -> None:
    import json

    from suite.files import write_whole
    from suite.predict.perfetto import trace
    from suite.predict.prediction import timeline

    answer = _written(path, answers)
    line = timeline(answer.scenario_of(answer.largest), answer.largest.ranks)
    write_whole(path, json.dumps(trace(line)) + "\n")


def _write_chakra(prefix: Path, answers: Sequence["Answer"]) -> None:
    from suite.predict import chakra

    answer = _written(prefix, answers)
    if answer.largest.ranks > MOST_FILES:
        raise RequestError(
            f"--chakra writes a file for each rank, and {answer.largest.ranks:,} are too many; "
            f"ask for {MOST_FILES:,} at most"
        )
    chakra.write(prefix, answer.scenario_of(answer.largest), answer.largest.ranks)


def _written(path: Path, answers: Sequence["Answer"]) -> "Answer":
    """The first training, of which that is told."""
    answer = answers[0]
    of = f", the first of {len(answers)} (--workload chooses)" if len(answers) > 1 else ""
    say(f"{path}: {answer.asked.label} on {_place(answer.largest)}{of}", err=True)
    return answer


def _place(one: "Prediction") -> str:
    return f"{one.ranks} rank{'s' if one.ranks > 1 else ''}, {one.schedule}"


def _print(answers: Sequence["Answer"]) -> None:
    from suite.cli import tables

    for answer in answers:
        shown = (*COLUMNS, *COMPARED) if any(map(answer.measured, answer.predictions)) else COLUMNS
        tables.show([_cells(answer, one) for one in answer.predictions], shown, answer.asked.label)
        for source in answer.asked.sources:
            say(f"  {source}")
        place = _place(answer.largest)
        say(f"critical path on {place}: {answer.largest.critical_path}")
        gains = [gain for gain in answer.gains if gain.gain > WORTH_A_LINE]
        say(f"what would help most on {place}:{'' if gains else ' nothing that the model knows'}")
        for gain in gains:
            say(f"  {gain.gain:+.1%}  {gain.change}")


def _cells(answer: "Answer", one: "Prediction") -> dict[str, Any]:
    from suite.cli.formatting import significant

    measured, error, (low, high) = answer.measured(one), answer.error(one), one.rates
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
