"""`stagebench verify`: make the proofs and show them. Heavy imports wait until the command runs."""

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stagebench.suite.cli.options import Pythons, interpreters_from, knobs_from
from stagebench.suite.cli.output import proofs_under_way, pulsing, say, show_json, show_rows
from stagebench.suite.errors import StagebenchError, Unavailable
from stagebench.suite.files import DOCS
from stagebench.suite.text import without_codes

if TYPE_CHECKING:
    from stagebench.suite.contracts.case import Case
    from stagebench.suite.proofs.make import Proofs
    from stagebench.suite.proofs.side_by_side import Proving
    from stagebench.suite.proofs.wanted import Wanted
    from stagebench.suite.results.records import Proof
    from stagebench.workloads.catalogue import Workload


NOT_MADE = ("unsupported", "unavailable")  # outcomes of cases without a proof
WHERE_TO_LOOK = f"these pages help: {DOCS / 'adapters.md'}, and {DOCS / 'planted-mistakes.md'}, which lists messages"
COLUMNS = ("case", "verdict", "worst tensor", "error", "allowed", "identity")


def verify(
    adapter: Annotated[list[str] | None, typer.Option(help="Only this adapter (repeatable).")] = None,
    workload: Annotated[
        list[str] | None,
        typer.Option(help="Only this workload, or a network's file (repeatable); if none: all but the large ones."),
    ] = None,
    strategy: Annotated[list[str] | None, typer.Option(help="Only this strategy (repeatable).")] = None,
    tuning: Annotated[list[str] | None, typer.Option(help="Only `default` or `tuned` (repeatable).")] = None,
    devices: Annotated[int, typer.Option(min=2, max=1024, help="Devices of the distributed strategies.")] = 2,
    device: Annotated[str, typer.Option(help="Kind of device: `cpu` or `cuda`.")] = "cpu",
    threads: Annotated[int, typer.Option(min=1, max=1024, help="Threads of each device: its plan's.")] = 1,
    precision: Annotated[
        list[str] | None, typer.Option(help="`float32` (the default), `bfloat16`, ... (repeatable).")
    ] = None,
    optimiser: Annotated[str, typer.Option(help="`sgd`, `adam` or `adamw`; adapters without it are named.")] = "sgd",
    clip_norm: Annotated[
        float, typer.Option(min=0.0, help="Prove gradient clipping, if above 0; proofs take a norm of their own.")
    ] = 0.0,
    changing_rate: Annotated[
        bool, typer.Option("--changing-rate", help="With a learning rate that changes at every update.")
    ] = False,
    knob: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE: for the adapters that have the knob (repeatable).")
    ] = None,
    python: Pythons = None,
    json: Annotated[bool, typer.Option("--json", help="Print the proofs as JSON.")] = False,
) -> None:
    """Prove that adapters train exactly the workloads they claim to, against a float64 oracle.

    With them each strategy and tuning is proven on `probe`, a network of every layer kind, and its `behaviour` is
    checked: dropout, `predict`, `step_alone`, and that no call puts off its work.

    The table names each proof's worst tensor, the one nearest to its bound; `identity` is float64's.
    Exit code 1 when a proof failed. What an adapter refuses, or this machine lacks, is named; in JSON `passed` is null.
    """
    from rich.console import Console
    from rich.text import Text

    from stagebench.suite.plan.networks import register
    from stagebench.suite.plan.overrides import is_path
    from stagebench.suite.plugins import adapters, workloads
    from stagebench.suite.processes.interpreters import find
    from stagebench.suite.proofs.every_adapter import BEHAVIOUR, PROBES
    from stagebench.suite.proofs.make import Proofs, tuned_batch
    from stagebench.suite.proofs.side_by_side import room, share, side_by_side
    from stagebench.suite.proofs.wanted import Wanted, cases_to_verify, for_every_network

    console, interpreters = Console(stderr=True), interpreters_from(python or [])
    networks = [register(Path(name)).name if is_path(name) else name for name in workload or []]
    wanted = Wanted(
        adapters=adapter or [],
        workloads=networks,
        strategies=strategy or [],
        tunings=tuning or [],
        devices=devices,
        device=device,
        threads=threads,
        precisions=precision or [],
        optimiser=optimiser,
        clip_norm=clip_norm,
        changing_rate=changing_rate,
        knobs=knobs_from(knob or []),
    )
    cases = cases_to_verify(wanted)
    cases += for_every_network(cases)
    for name in sorted({case.adapter for case, refused in cases if not refused}):
        with suppress(Unavailable):  # a row of its own; a named interpreter that does not work ends the command
            find(adapters()[name], interpreters)
    names = [f"[{number}/{len(cases)}] {_name(case, wanted)}" for number, (case, _) in enumerate(cases, 1)]
    made: dict[int, Proof] = {}
    running: dict[int, str] = {}  # in the order of their beginnings
    reasons: dict[str, int] = {}
    maker, probes = Proofs(interpreters), {each.name: each for each in (*PROBES, BEHAVIOUR)}
    proven = [probes.get(case.workload) or workloads()[case.workload] for case, _ in cases]

    def proving(index: int) -> "Proving[int]":
        case, refused = cases[index]
        if refused:
            made[index] = _unproven(case, "unsupported", refused)
            return index
        running[index] = names[index]
        status.update(Text(without_codes(proofs_under_way(running.values()))))
        made[index] = yield from _proving(case, proven[index], maker, interpreters)
        del running[index]
        status.update(Text(without_codes(proofs_under_way(running.values()))))
        return index

    try:
        with console.status("") as status, pulsing(lambda: str(status.status), console):
            shares = [
                share(case, network.graph(), True, bool(tuned_batch(case, adapters()[case.adapter])))
                for (case, _), network in zip(cases, proven, strict=True)
            ]
            for index in side_by_side(zip(shares, map(proving, range(len(cases))), strict=True), room()):
                reason = _reason(made[index].reason, index + 1, reasons)
                line = ": ".join(filter(None, (names[index], _verdict(made[index]), reason)))
                console.print(without_codes(line), highlight=False, markup=False, soft_wrap=True)
    finally:  # an error or Ctrl-C does not lose hours of proofs
        proofs = [(case, made[index]) for index, (case, _) in enumerate(cases) if index in made]
        if json:
            show_json([_json(proof) for _, proof in proofs])
        elif proofs:
            show_rows([_row(_name(case, wanted), proof) for case, proof in proofs], COLUMNS)
        counts = Counter(_verdict(proof) for _, proof in proofs)
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
        say("\n".join([*[WHERE_TO_LOOK] * bool(counts["FAILED"]), verdicts]), err=True)
    if counts["FAILED"] or not counts["proven"]:
        raise typer.Exit(1)


def _verdict(proof: "Proof") -> str:
    return proof.outcome if proof.outcome in NOT_MADE else "proven" if proof.passed else "FAILED"


def _json(proof: "Proof") -> dict[str, Any]:
    """Return a proof as JSON, or the reason why there is none."""
    from stagebench.suite.results.records import Subject

    if proof.outcome not in NOT_MADE:
        return proof.model_dump(mode="json")
    subject = proof.model_dump(include=set(Subject.model_fields))
    return {**subject, "passed": None, "verdict": proof.outcome, "reason": proof.reason}


def _reason(reason: str, number: int, seen: dict[str, int]) -> str:
    """Return a reason, or from its second time on the number of the case that had it first."""
    first = seen.setdefault(reason, number)
    return reason if not reason or first == number else f"see [{first}]"


def _unproven(case: "Case", outcome: str | None, reason: str) -> "Proof":
    from stagebench.suite.proofs.make import subject
    from stagebench.suite.results.records import Proof

    return Proof(key=None, **subject(case), passed=False, outcome=outcome, reason=reason)


def _proving(case: "Case", workload: "Workload", maker: "Proofs", interpreters: dict[str, str]) -> "Proving[Proof]":
    from stagebench.suite.files import scratch
    from stagebench.suite.plugins import workloads
    from stagebench.suite.proofs.every_adapter import BEHAVIOUR
    from stagebench.suite.session.cases import launch_of_case

    with scratch() as folder:
        try:
            registered = case if workload.name in workloads() else case.on(workload=next(iter(workloads())))
            launch = launch_of_case(registered, interpreters, folder / "bundle")
        except Unavailable as error:
            return _unproven(case, "unavailable", str(error))
        except StagebenchError as error:  # an error in one adapter does not end the others
            return _unproven(case, None, str(error))
        launch = replace(launch, configuration=case, workload=workload)
        make = maker.behaving if workload is BEHAVIOUR else maker.proving
        return (yield from make(case, launch, folder))


def _name(case: "Case", wanted: "Wanted") -> str:
    asked = [case.precision] if case.precision != "float32" else []
    asked += [case.optimiser] if case.optimiser != "sgd" else []
    asked += ["clipped"] if wanted.clip_norm else []
    asked += ["changing rate"] if wanted.changing_rate else []
    asked += [f"{knob}={case.knobs[knob]}" for knob in wanted.knobs if knob in case.knobs]
    of = f"{case.adapter}/{case.strategy} {case.workload} x{case.placement.device_count} {case.tuning}"
    return " ".join([of, *asked])


def _row(name: str, proof: "Proof") -> dict[str, Any]:
    worst = None if proof.outcome in NOT_MADE else proof.worst
    identity = proof.identity.worst if proof.identity else None
    return {
        "case": name,
        "verdict": _verdict(proof),
        "worst tensor": f"{worst.what} {worst.tensor}" if worst else "",
        "error": f"{worst.error:.1e}" if worst else "",
        "allowed": f"{worst.tolerance:.0e}" if worst else "",
        "identity": f"{identity.error:.1e} {identity.what} {identity.tensor}" if identity else "",
        "reason": proof.reason,
    }
