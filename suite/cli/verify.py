"""`stagebench verify`: make the proofs and show them. Heavy imports wait until the command runs."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from suite.case import Case
    from suite.proof.proofs import Proofs


COLUMNS = ("case", "verdict", "worst tensor", "error", "allowed", "identity")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(verify)


def verify(
    adapter: Annotated[list[str] | None, typer.Option(help="Only this adapter (repeatable).")] = None,
    workload: Annotated[list[str] | None, typer.Option(help="Only this workload (repeatable).")] = None,
    strategy: Annotated[list[str] | None, typer.Option(help="Only this strategy (repeatable).")] = None,
    tuning: Annotated[list[str] | None, typer.Option(help="Only `default` or `tuned` (repeatable).")] = None,
    devices: Annotated[int, typer.Option(min=2, max=1024, help="Devices of the distributed strategies.")] = 2,
    device: Annotated[str, typer.Option(help="Kind of device: `cpu` or `cuda`.")] = "cpu",
    optimiser: Annotated[str, typer.Option(help="`sgd` or `adam`; adapters without it are named.")] = "sgd",
    python: Annotated[list[str] | None, typer.Option(help="NAME=PATH: an adapter's interpreter.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the proofs as JSON.")] = False,
) -> None:
    """Prove that adapters train exactly the workloads they claim to, against a float64 oracle.

    The table names each proof's worst tensor, the one nearest to its bound; `identity` is the worst error in float64.
    Exit code 1 when a proof failed. What an adapter refuses, or this machine lacks, is named; in JSON `passed` is null.
    """
    import json as encoder
    from collections import Counter

    from rich.console import Console

    from suite.cli.options import interpreters_from
    from suite.cli.tables import show
    from suite.proof.proofs import Proofs, about
    from suite.proof.verify import Wanted, cases_to_verify

    console, interpreters = Console(stderr=True), interpreters_from(python or [])
    rows, proofs, maker = [], [], Proofs(interpreters)
    wanted = Wanted(adapter or [], workload or [], strategy or [], tuning or [], devices, device, optimiser)
    cases = cases_to_verify(wanted)
    for number, (case, refused) in enumerate(cases, 1):
        name = f"[{number}/{len(cases)}] {_name(case)}"
        with console.status(f"proving {name}"):
            verdict, proof = ("unsupported", {"reason": refused}) if refused else _proven(case, maker, interpreters)
        proofs.append(proof if "passed" in proof else {**about(case), "passed": None, "verdict": verdict, **proof})
        rows.append(_row(case, verdict, proof))
        told = (name, verdict, rows[-1]["reason"])
        console.print(": ".join(filter(None, told)), highlight=False, markup=False, soft_wrap=True)
    verdicts = [proof["passed"] for proof in proofs]
    if json:
        typer.echo(encoder.dumps(proofs, indent=1))
    else:
        show(rows, COLUMNS)
    console.print(", ".join(f"{count} {verdict}" for verdict, count in Counter(row["verdict"] for row in rows).items()))
    if False in verdicts or True not in verdicts:
        raise typer.Exit(1)


def _proven(case: "Case", maker: "Proofs", interpreters: dict[str, str]) -> tuple[str, dict[str, Any]]:
    """(verdict, the proof or why there is none)."""
    import tempfile
    from pathlib import Path

    from suite.errors import Unavailable
    from suite.session import ready

    with tempfile.TemporaryDirectory() as scratch:
        try:
            item = ready(case, interpreters, Path(scratch) / "bundle")
        except Unavailable as error:
            return "unavailable", {"reason": str(error)}
        proof = maker.prove(item, Path(scratch))
    if proof.get("outcome") in ("unsupported", "unavailable"):  # found out on the spot: no adapter foresees everything
        return proof["outcome"], {"reason": proof["reason"]}
    return "proven" if proof["passed"] else "FAILED", proof


def _name(case: "Case") -> str:
    rule = "" if case.optimiser == "sgd" else f" {case.optimiser}"
    return f"{case.adapter}/{case.strategy} {case.workload} x{case.placement.device_count} {case.tuning}{rule}"


def _row(case: "Case", verdict: str, proof: dict[str, Any]) -> dict[str, Any]:
    worst, identity = proof.get("worst"), (proof.get("identity") or {}).get("worst")
    return {
        "case": _name(case),
        "verdict": verdict,
        "worst tensor": f"{worst['what']} {worst['tensor']}" if worst else "",
        "error": f"{worst['error']:.1e}" if worst else "",
        "allowed": f"{worst['tolerance']:.0e}" if worst else "",
        "identity": f"{identity['error']:.1e}" if identity else "",
        "reason": str(proof.get("reason") or ""),
    }
