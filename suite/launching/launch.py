"""From a case to an attempt: the job file, the launcher's processes, the watch over them."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from suite.contracts.adapter import Adapter
from suite.contracts.case import Case
from suite.contracts.launcher import Launcher, Request
from suite.data.sets import locate
from suite.environments.find import Interpreter
from suite.files import write_whole
from suite.launching import bundle
from suite.launching.placement_check import Told, misplaced, pinned, unthreaded, unwired
from suite.launching.ports import free_port
from suite.supervision import Attempt, Limits, run
from suite.worker.job import FORMAT, THREADS
from workloads.catalogue import Workload

Heard = Callable[[int, dict[str, Any]], None]


@dataclass(frozen=True)
class Ready:
    """A case with all that is needed to start it."""

    case: Case
    adapter: Adapter
    workload: Workload
    launcher: Launcher
    interpreter: Interpreter
    bundle: Path

    def attempt(self, folder: Path, task: str, heard: Heard, joining: float | None = None, **extra: Any) -> Attempt:
        """Start a task of `suite.worker.tasks` and watch it to its end; evidence stays in `folder`.

        `joining`: seconds of silence until a rank has joined, where they are not those of the case.
        """
        folder = folder.resolve()
        job = {
            "format": FORMAT,
            "task": task,
            "trainer": self.adapter.trainer,
            "case": self.case.to_dict(),
            "graph": self.workload.graph().to_dict(),
            "data": locate(self.case.data, self.workload, self.adapter.capabilities.format(self.case.input.format)),
            "preprocessing": self.workload.preprocessing._asdict(),
            "output": str(folder),
            "parts": max(1, self.adapter.parts(self.case) // self.case.placement.devices),
            **extra,
        }
        job_file = folder / "job.json"
        write_whole(job_file, json.dumps(job, indent=1))
        placement = self.case.placement
        command, environ = bundle.command(self.interpreter.path, self.bundle, job_file, placement.threads)
        request = Request(
            placement=placement,
            command=command,
            interpreter=self.interpreter.path,
            environ={**environ, **self.adapter.environ(self.case, self.interpreter.path)},
            folder=folder,
            port=free_port(),
            seconds=self.case.time_limit,
            companions=tuple(
                bundle.script(self.interpreter.path, self.bundle, tokens)
                for tokens in self.adapter.companions(self.case)
            ),
        )
        limits = Limits(self.case.time_limit, self.case.silence_limit, joining)
        attempt = run(self.launcher.processes(request), placement.ranks, folder, limits, heard)
        problem = self._astray(attempt, request.environ) if attempt.outcome == "ok" else None
        return replace(attempt, outcome="crash", reason=problem) if problem else attempt

    def _astray(self, attempt: Attempt, environ: Mapping[str, str]) -> str | None:
        """Why what the ranks did is not what the case asks for, or None."""
        told = [Told.of(rank, messages) for rank, messages in sorted(attempt.messages.items())]
        placement, share, graph = self.case.placement, self.adapter.wire_share(self.case), self.workload.graph()
        # As the launcher was given them: an adapter may set its own.
        threads = {name: environ[name] for name in THREADS}
        return (
            misplaced(placement, told, self.launcher.nodes_in_order)
            or pinned(placement, told)
            or unthreaded(placement, told, threads)
            or unwired(told, graph.gradient_bytes(), share)
        )
