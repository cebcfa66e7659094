"""`stagebench manifests`: a plan for a Kubernetes cluster. Heavy imports wait until the command runs."""

from pathlib import Path
from typing import Annotated

import typer

from stagebench.suite.cli.output import say
from stagebench.suite.contracts.hooks import hookimpl
from stagebench.suite.text import command_line


@hookimpl
def stagebench_commands(app: typer.Typer) -> None:
    app.command()(manifests)


def manifests(
    plan: Annotated[str, typer.Argument(help="A ready-made plan's name (`stagebench list plans`) or a TOML file.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of the manifests, a file a case.")],
    image: Annotated[str, typer.Option(help="Holds stagebench, the frameworks' environments and an sshd.")],
    scale: Annotated[str | None, typer.Option(help="One of the plan's scales.")] = None,
    namespace: Annotated[str, typer.Option(help="Where the jobs run.")] = "default",
    claim: Annotated[str, typer.Option(help="The volume claim, ReadWriteMany, for results.")] = "stagebench",
    secret: Annotated[str, typer.Option(help="Keys for logins between a PyTorchJob's pods.")] = "stagebench-ssh",
) -> None:
    """Write a plan's cases as Kubernetes jobs: a Job on one node, an MPIJob or a PyTorchJob on several.

    Each runs `stagebench run` inside the cluster, for its one case; nothing is started here.
    """
    from stagebench.cluster.kubernetes.jobs import Settings, write
    from stagebench.suite.plan import load, resolve
    from stagebench.suite.plugins import adapters, launchers, workloads

    loaded = load(plan, scale)
    resolved = resolve(loaded, adapters(), launchers(), workloads())
    name = "-".join(filter(None, (loaded.name, scale)))
    written, refused = write(name, resolved, output, Settings(image, namespace, claim, secret))
    for line in refused:
        say(line, err=True)
    say(f"{len(written)} manifests in {output}. Next: {command_line('kubectl', 'apply', '-f', output)}")
