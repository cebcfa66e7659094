"""Writes the files: one a case, for `kubectl apply -f FOLDER`."""

from collections.abc import Iterable
from pathlib import Path

import yaml

from cluster.kubernetes.inside import Inside, Settings, inside, label
from cluster.kubernetes.jobs import RESULTS, Yaml, documents
from suite.errors import RequestError
from suite.files import usable, write_whole
from suite.plan import Resolved
from suite.plan.text import Block, plan_text
from suite.plugins import adapters
from suite.processes.hosts import refused
from suite.text import shown, without_codes


class Dumper(yaml.SafeDumper):  # type: ignore[misc]  # it carries no types
    """Keeps the order, and text of several lines readable."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


Dumper.add_representer(str, _text)
Dumper.ignore_aliases = lambda self, data: True

LISTED = 10  # cases that a refusal lists


def write(plan: str, resolved: Iterable[Resolved], folder: Path, settings: Settings) -> tuple[list[Path], list[str]]:
    """Return (the files, a line about every case that was skipped). `plan` is the plan's name."""
    if refused(settings.namespace) or "." in settings.namespace:  # a part of the pods' host names
        raise RequestError(f"--namespace {shown(settings.namespace)} is no namespace: take letters, digits and '-'")
    with usable(folder):
        folder.mkdir(parents=True, exist_ok=True)
    stale = sorted(path.name for path in folder.glob("*.yaml"))
    if stale:
        raise RequestError(
            f"{folder} holds manifests already ({stale[0]}), and kubectl would apply them too; name another with -o"
        )
    jobs, skipped = [], []
    for number, one in enumerate(resolved, 1):
        try:
            if one.outcome is not None:
                raise ValueError(f"{one.outcome}: {one.reason}")
            operator = adapters()[one.case.adapter].kubernetes_job
            jobs.append(inside(plan, number, one.case, settings.namespace, operator))
        except ValueError as error:
            skipped.append(f"{one.case.label} is skipped: {error}")
    if not jobs:
        more = [f"and {len(skipped) - LISTED:,} more"] if len(skipped) > LISTED else []
        lines = ["no case of this plan can be written for Kubernetes:", *skipped[:LISTED], *more]
        raise RequestError("\n".join(lines))
    return [_write(job, plan, folder, settings) for job in jobs], skipped


def _write(job: Inside, plan: str, folder: Path, settings: Settings) -> Path:
    path = folder / f"{job.name}.yaml"
    write_whole(path, text_of(job, plan, settings))
    return path


def text_of(job: Inside, plan: str, settings: Settings) -> str:
    """Return the text of one file: a comment for people, the plan, the job."""
    run = label(plan)
    alone = plan_text(job.name, "", f"One case of the plan {plan}.", [Block(job.case, "")])
    about = (job.case.label, f"Its run folder: {RESULTS}/{run}/{job.name} on the volume {settings.claim}.")
    head = "".join(f"# {' '.join(without_codes(line).split())}\n" for line in about)  # YAML knows more ends than \\n
    return head + "---\n".join(dumped(each) for each in documents(job, settings, alone, run))


def dumped(document: Yaml) -> str:
    found: str = yaml.dump(document, Dumper=Dumper, sort_keys=False, width=120, allow_unicode=True)
    return found
