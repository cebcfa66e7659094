"""A launch: one group of processes that does a task of the worker half. A case is one maker of launches among others.

The job is written, the launcher's processes are started and watched, and what the ranks did is checked against what
they were placed and told to do.
"""

import json
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from suite.contracts.adapter import Adapter
from suite.contracts.case import Configuration
from suite.contracts.launcher import Launcher, Request
from suite.environments.find import Interpreter, find
from suite.environments.hosts import here
from suite.errors import Unavailable
from suite.files import write_whole
from suite.launching import bundle
from suite.launching.placement_check import Told, misplaced, pinned, unthreaded, unwired
from suite.launching.ports import free_port
from suite.plugins import adapters, launchers, workloads
from suite.supervision import Attempt, Limits, run
from suite.worker.job import FORMAT, THREADS
from workloads.catalogue import Workload

OnMessage = Callable[[int, dict[str, Any]], None]  # (rank, what it sent)


def ignore(rank: int, message: dict[str, Any]) -> None:
    """Nobody asked for a rank's messages while it runs."""


@dataclass(frozen=True)
class Launch:
    """All that is needed to start the processes of a configuration."""

    configuration: Configuration
    adapter: Adapter
    workload: Workload
    launcher: Launcher
    interpreter: Interpreter
    bundle: Path
    limits: Limits

    def run(self, folder: Path, task: str, on_message: OnMessage = ignore, **job: Any) -> Attempt:
        """Run a task of `suite.worker.tasks` to its end; evidence stays in `folder`. `job` is what the task takes."""
        folder = folder.resolve()
        request = self._request(folder, self._written(folder, task, job))
        ranks = self.configuration.placement.ranks
        attempt = run(self.launcher.processes(request), ranks, folder, self.limits, on_message)
        problem = self._placement_problem(attempt, request.environ) if attempt.outcome == "ok" else None
        return replace(attempt, outcome="crash", reason=problem) if problem else attempt

    def _written(self, folder: Path, task: str, more: Mapping[str, Any]) -> Path:
        configuration = self.configuration
        job = {
            "format": FORMAT,
            "task": task,
            "trainer": self.adapter.trainer,
            "case": configuration.to_dict(),
            "graph": self.workload.graph().to_dict(),
            "data": None,
            "preprocessing": self.workload.preprocessing._asdict(),
            "output": str(folder),
            "parts": max(1, self.adapter.parts(configuration) // configuration.placement.devices),
            **more,
        }
        path = folder / "job.json"
        write_whole(path, json.dumps(job, indent=1))
        return path

    def _request(self, folder: Path, job: Path) -> Request:
        configuration, placement = self.configuration, self.configuration.placement
        command, environ = bundle.command(self.interpreter.path, self.bundle, job, placement.threads)
        beside = self.adapter.companions(configuration)
        return Request(
            placement=placement,
            command=command,
            interpreter=self.interpreter.path,
            environ={**environ, **self.adapter.environ(configuration, self.interpreter.path)},
            folder=folder,
            port=free_port(),
            seconds=self.limits.seconds,
            companions=tuple(bundle.script(self.interpreter.path, self.bundle, tokens) for tokens in beside),
        )

    def _placement_problem(self, attempt: Attempt, environ: Mapping[str, str]) -> str | None:
        """How what the ranks did differs from what was asked for, or None."""
        told = [Told.of(rank, messages) for rank, messages in sorted(attempt.messages.items())]
        placement, share = self.configuration.placement, self.adapter.wire_share(self.configuration)
        # As the launcher was given them: an adapter may set its own.
        threads = {name: environ[name] for name in THREADS}
        return (
            misplaced(placement, told, self.launcher.nodes_in_order)
            or pinned(placement, told)
            or unthreaded(placement, told, threads)
            or unwired(told, self.workload.graph().gradient_bytes(), share)
        )


def launch_of(
    configuration: Configuration,
    limits: Limits,
    interpreters: Mapping[str, str],
    bundle_folder: Path,
    interpreter: Interpreter | None = None,
) -> Launch:
    """The launch of a configuration, in that interpreter or the adapter's own; its bundle is written to the folder.

    `interpreters` are the explicit settings (adapter: path). Unavailable says what this machine lacks.
    """
    adapter, launcher = adapters()[configuration.adapter], launchers()[configuration.placement.launcher]
    interpreter = interpreter or find(adapter, interpreters)
    missing = launcher.missing(configuration.placement, interpreter.path)
    if missing:
        raise Unavailable(missing)
    first = configuration.placement.hosts[0] if configuration.placement.hosts else "localhost"
    if adapter.companions(configuration) and not (launcher.companions_on_first_host or here(first)):
        raise Unavailable(
            f"{adapter.name}/{configuration.strategy} meets its servers on the first host, {first}, and they are "
            f"started on this machine, {socket.gethostname()}; name this machine first in `hosts`, or run stagebench "
            f"on {first}"
        )
    code = bundle.write(adapter, bundle_folder)
    return Launch(configuration, adapter, workloads()[configuration.workload], launcher, interpreter, code, limits)
