"""`stagebench predict`: the speed of a training on machines that one does not have.

Heavy imports wait until the command runs, so that --help is quick.
"""

from collections.abc import Sequence
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from stagebench.suite.cli.output import say, show_json, show_rows
from stagebench.suite.errors import RequestError
from stagebench.suite.text import counted, significant

if TYPE_CHECKING:
    from stagebench.suite.predict.prediction import Answer, Prediction

COLUMNS = ("ranks", "schedule", "samples/s", "95 % interval", "ms/step", "efficiency", "exposed ms")
COMPARED = ("measured", "error")
WORTH_A_LINE = 0.001  # of a gain
MOST_FILES = 4096  # of execution traces


class WithSettings(TyperCommand):
    """A command that refuses an option with the `--set` of that name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        options = {name for parameter in self.params for name in parameter.opts}
        for option in (word.partition("=")[0] for word in args):
            if option.startswith("--") and option not in (*options, "--help"):
                from stagebench.suite.predict.request import Request

                key = option.removeprefix("--").replace("-", "_")
                if key in Request.model_fields:
                    raise RequestError(f"{option} is a setting of the scenario: write --set {key}=VALUE")
        return super().parse_args(ctx, args)


def predict(
    context: typer.Context,
    source: Annotated[
        Path | None,
        typer.Argument(help="A run folder to fit to, or a TOML file of a scenario; without one, give the numbers."),
    ] = None,
    workload: Annotated[
        str | None, typer.Option(help="A workload, or a network's file; of a run: only this one, by its name.")
    ] = None,
    batch: Annotated[int | None, typer.Option(help="Samples per device.")] = None,
    rate: Annotated[float | None, typer.Option(help="Samples/s of one device alone.")] = None,
    alpha: Annotated[float | None, typer.Option(help="Seconds to begin a message.")] = None,
    beta: Annotated[float | None, typer.Option(help="Seconds a byte.")] = None,
    comm: Annotated[Path | None, typer.Option(help="A run of `stagebench comm` that has measured the link.")] = None,
    ranks: Annotated[
        str | None, typer.Option(help="A,B,...: how many devices, each a rank (default: 2,4,8,16,32).")
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(
            help="When gradients leave: sequential, fused, wfbp, buckets, merged, priority; several as A,B,... or all. "
            "Default: wfbp; of a run what comes nearest to it."
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Any other key of a scenario, such as algorithm=tree or stages=4 (repeatable).",
        ),
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
    from stagebench.suite.predict.request import request

    names = ("workload", "batch", "rate", "alpha", "beta", "comm", "ranks", "schedule")
    options = {name: context.params[name] for name in names}
    for option, path in (("--trace", trace), ("--chakra", chakra)):
        if path and not path.parent.is_dir():
            raise RequestError(f"{option} {path}: there is no folder {path.parent}; make it, or name another place")
    file = source if source and source.suffix == ".toml" else None
    answers, refusals = request(file, options, set_ or []).answers(None if file else source)
    if json:
        show_json([answer.to_dict() for answer in answers])
    else:
        _print(answers)
    for refusal in refusals:
        say(f"not predicted: {refusal}", err=True)
    _write(answers, trace, chakra)


def _write(answers: Sequence["Answer"], trace: Path | None, chakra: Path | None) -> None:
    """Write the first training on its most ranks as a timeline and as execution traces, and name it."""
    from stagebench.suite.files import write_whole
    from stagebench.suite.predict.chakra import write
    from stagebench.suite.predict.prediction import timeline
    from stagebench.suite.predict.timeline import trace as for_perfetto

    answer, ranks = answers[0], answers[0].largest.ranks
    scenario = answer.scenario_of(answer.largest)
    others = f", the first of {len(answers)} (--workload chooses)" if len(answers) > 1 else ""
    for path in filter(None, (trace, chakra)):
        say(f"{path}: {answer.asked.label} on {_place(answer.largest)}{others}", err=True)
    if trace:
        write_whole(trace, dumps(for_perfetto(timeline(scenario, ranks))) + "\n")
    if chakra and ranks > MOST_FILES:
        raise RequestError(
            f"--chakra writes a file for each rank, and {ranks:,} are too many; ask for {MOST_FILES:,} at most"
        )
    if chakra:
        write(chakra, scenario, ranks)


def _place(one: "Prediction") -> str:
    return f"{counted(one.ranks, 'rank')}, {one.schedule}"


def _print(answers: Sequence["Answer"]) -> None:
    for answer in answers:
        shown = (*COLUMNS, *COMPARED) if any(map(answer.measured, answer.predictions)) else COLUMNS
        show_rows([_cells(answer, one) for one in answer.predictions], shown, answer.asked.label)
        for source in answer.asked.sources:
            say(f"  {source}")
        place = _place(answer.largest)
        say(f"critical path on {place}: {answer.largest.critical_path}")
        gains = [gain for gain in answer.gains if gain.gain > WORTH_A_LINE]
        say(f"what would help most on {place}:{'' if gains else ' nothing that the model knows'}")
        for gain in gains:
            say(f"  {gain.gain:+.1%}  {gain.change}")


def _cells(answer: "Answer", one: "Prediction") -> dict[str, Any]:
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
