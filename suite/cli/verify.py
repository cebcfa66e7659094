"""`stagebench verify`: make the proofs and show them. Heavy imports wait until the command runs."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from suite.case import Case


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(verify)


def verify(
    adapter: Annotated[list[str] | None, typer.Option(help="Only this adapter (repeatable).")] = None,
    workload: Annotated[list[str] | None, typer.Option(help="Only this workload (repeatable).")] = None,
    strategy: Annotated[list[str] | None, typer.Option(help="Only this strategy (repeatable).")] = None,
    tuning: Annotated[list[str] | None, typer.Option(help="Only `default` or `tuned` (repeatable).")] = None,
    ranks: Annotated[int, typer.Option(min=2, max=1024, help="Ranks of the distributed strategies.")] = 2,
    python: Annotated[list[str] | None, typer.Option(help="NAME=PATH: an adapter's interpreter.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the proofs as JSON.")] = False,
) -> None:
    """Prove that adapters train exactly the workloads they claim to, against a float64 oracle.

    Exit code 1 when a proof failed; adapters that are not ready here are named and left out.
    """
    import json as encoder
    import tempfile
    from pathlib import Path

    from rich.console import Console

    from suite.cli.options import interpreters_from
    from suite.errors import Unavailable
    from suite.proof.proofs import Proofs
    from suite.proof.verify import cases_to_verify
    from suite.session import ready

    console, interpreters = Console(stderr=json), interpreters_from(python or [])
    proofs, rows, proof_maker = [], [], Proofs(interpreters)
    for case in cases_to_verify(adapter or [], workload or [], strategy or [], tuning or [], ranks):
        with tempfile.TemporaryDirectory() as scratch, console.status(f"proving {_name(case)}"):
            try:
                item = ready(case, interpreters, Path(scratch) / "bundle")
            except Unavailable as error:
                rows.append((_name(case), "unavailable", str(error)))
            else:
                proofs.append(proof_maker.prove(item, Path(scratch)))
                rows.append((_name(case), "proven" if proofs[-1]["passed"] else "FAILED", _summary(proofs[-1])))
        console.print(*rows[-1], sep=": ", highlight=False)
    if json:
        typer.echo(encoder.dumps(proofs, indent=1))
    failed = sum(not proof["passed"] for proof in proofs)
    console.print(f"{len(proofs) - failed} proven, {failed} failed, {len(rows) - len(proofs)} unavailable")
    if failed or not proofs:
        raise typer.Exit(1)


def _name(case: "Case") -> str:
    return f"{case.adapter}/{case.strategy} {case.workload} x{case.placement.device_count} {case.tuning}"


def _summary(proof: dict[str, Any]) -> str:
    if not proof["passed"]:
        return str(proof["reason"])
    worst = proof["worst"]
    return f"worst {worst['what']} {worst['tensor']} {worst['error']:.1e} of {worst['tolerance']:.0e}"
