"""A launch: one group of processes that does a task of the worker half. A case is one maker of launches among others.

The job is written, the launcher's processes are started and watched, and what the ranks did is checked against what
they were placed and asked to do.
"""

import errno
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from stagebench.suite.contracts.adapter import Adapter
from stagebench.suite.contracts.case import AUTO, Configuration
from stagebench.suite.contracts.launcher import Launcher, Request, usual
from stagebench.suite.contracts.model_server import INPROCESS
from stagebench.suite.errors import Unavailable
from stagebench.suite.files import ROOM, disk, real, write_whole
from stagebench.suite.plugin_errors import ask
from stagebench.suite.plugins import adapters, launchers, model_servers, workloads
from stagebench.suite.processes import bundle, jobs, placement_check
from stagebench.suite.processes.attempt import Attempt, Limits, Measuring, OnMessage, Sent, in_one_go, joined, running
from stagebench.suite.processes.hosts import here
from stagebench.suite.processes.interpreters import Interpreter, find
from stagebench.suite.worker.job import Job, ModelServer, Task, encode
from stagebench.suite.worker.messages import Message
from stagebench.suite.worker.rendezvous import free_port
from stagebench.suite.worker.variables import THREADS
from stagebench.workloads.catalogue import Workload


def ignore(rank: int, message: Message) -> None:
    """Take a rank's message, which nothing needs while it runs."""


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
    model_server: ModelServer | None = None  # that a case's load `server` asks
    trace: tuple[float, ...] = ()  # when its queries arrive
    tuned_batch: int = 0  # samples per device of the measured case that a proof covers; 0: the configuration's

    @property
    def here(self) -> bool:
        """True if all ranks certainly run on this machine."""
        hosts = self.configuration.placement.hosts
        return all(map(here, hosts)) if hosts else not self.launcher.chooses_hosts

    def run(self, folder: Path, task: Task, on_message: OnMessage = ignore) -> Attempt:
        """Run a task to its end; evidence stays in `folder`."""
        return in_one_go(self.running(folder, task, on_message))

    def running(self, folder: Path, task: Task, on_message: OnMessage = ignore, in_turns: bool = False) -> Measuring:
        """Do what `run` does, with pauses; see stagebench.suite.processes.attempt.running.

        Ranks that meet by sidecars and were silent before all had joined are tried once more: MXNet's ps-lite loses a
        meeting now and then, and nothing was measured yet. The evidence keeps the first reason.
        """
        attempt = yield from self._tried(folder, task, on_message, in_turns)
        met = joined(attempt.messages, self.configuration.placement.ranks)
        if attempt.outcome == "timeout" and not met and ask(self.adapter, "sidecars", self.configuration):
            again = yield from self._tried(folder, task, on_message, in_turns)
            attempt = replace(again, evidence={**again.evidence, "first_try": attempt.reason})
        return attempt

    def _tried(self, folder: Path, task: Task, on_message: OnMessage, in_turns: bool) -> Measuring:
        folder = real(folder)
        job_file = folder / "job.json"
        group = jobs.group(self.configuration, self.adapter, self.tuned_batch, self.workload.graph().decay)
        write_whole(job_file, encode(Job(str(folder), group, task)))
        ranks, phrases = self.configuration.placement.ranks, self.adapter.out_of_memory
        with meeting_port() as port:
            request = self._request(folder, job_file, port)
            with disk(f"cannot prepare {folder}", ROOM):  # a launcher may write there what its engine reads
                started = ask(self.launcher, "processes", request)
            misplaced = partial(self._placement_problem, request.environ)
            attempt = yield from running(started, ranks, folder, self.limits, on_message, phrases, in_turns, misplaced)
        problem = misplaced(attempt.messages) if attempt.outcome == "ok" else None
        return replace(attempt, outcome="crash", reason=problem) if problem else attempt

    def _request(self, folder: Path, job: Path, port: int) -> Request:
        configuration, placement = self.configuration, self.configuration.placement
        command, environ = bundle.command(self.interpreter.path, self.bundle, job, placement.threads)
        beside = ask(self.adapter, "sidecars", configuration)
        own = ask(self.adapter, "environ", configuration, self.interpreter.path)
        return Request(
            placement=placement,
            command=command,
            interpreter=self.interpreter.path,
            environ={**environ, **own},
            folder=folder,
            port=port,
            mpi=ask(self.adapter, "mpi", configuration),
            seconds=self.limits.total_s,
            sidecars=tuple(
                bundle.script(self.interpreter.path, self.bundle, tokens, placement.memory_limit) for tokens in beside
            ),
        )

    def _placement_problem(self, environ: Mapping[str, str], messages: Sent) -> str | None:
        reports = [placement_check.RankReport.of(rank, sent) for rank, sent in sorted(messages.items())]
        placement, share = self.configuration.placement, ask(self.adapter, "wire_share", self.configuration)
        # As the launcher was given them: an adapter may set its own.
        threads = {name: environ[name] for name in THREADS}
        return (
            placement_check.hosts_problem(placement, reports, self.launcher.nodes_in_order)
            or placement_check.binding_problem(placement, reports)
            or placement_check.devices_problem(placement, reports)
            or placement_check.threads_problem(placement, reports, threads)
            or placement_check.transport_problem(reports, self.workload.graph().gradient_bytes(), share)
        )


def launch_of(
    configuration: Configuration,
    limits: Limits,
    interpreters: Mapping[str, str],
    bundle_folder: Path,
    interpreter: Interpreter | None = None,
) -> Launch:
    """Return the launch of a configuration, in that interpreter or the adapter's own, and write its bundle.

    `interpreters` are the explicit settings (adapter: path). Unavailable says what this machine lacks.
    """
    adapter = adapters()[configuration.adapter]
    strategy, name = adapter.capabilities.strategy(configuration.strategy), configuration.placement.launcher
    if name == AUTO and strategy:
        name = usual(strategy, launchers())
        configuration = configuration.on(placement=replace(configuration.placement, launcher=name))
    launcher = launchers()[name]
    interpreter = interpreter or find(adapter, interpreters)
    missing = ask(launcher, "missing", configuration.placement, interpreter.path)
    if missing:
        raise Unavailable(missing)
    first = configuration.placement.hosts[0] if configuration.placement.hosts else "localhost"
    served = ask(adapter, "sidecars", configuration)
    if served and not (launcher.sidecars_on_first_host or here(first)):
        raise Unavailable(
            f"{adapter.name}/{configuration.strategy} meets its servers on the first host, {first}, and they are "
            f"started on this machine, {socket.gethostname()}; name this machine first in `hosts`, or run stagebench "
            f"on {first}"
        )
    code = bundle.write(adapter, bundle_folder)
    return Launch(configuration, adapter, workloads()[configuration.workload], launcher, interpreter, code, limits)


def started(name: str, interpreters: Mapping[str, str], bundle_folder: Path) -> ModelServer | None:
    """Return how ranks start a model server, and write its bundle, or ask one elsewhere; None for `inprocess`.

    Unavailable says what this machine lacks.
    """
    if name == INPROCESS:
        return None
    server = model_servers()[name]
    tokens, code, version = list[str](), "", ""
    if server.requires:
        interpreter = find(server, interpreters)
        tokens = [str(interpreter.path)]
    if server.program:
        code = str(bundle.write(server, bundle_folder))
        tokens = list(bundle.script(interpreter.path, Path(code), (server.program,)))
        version = interpreter.packages[server.requires[0]]
    asked = (server.path, server.protocol, server.whole_ms, server.since_arrival, dict(server.environ), server.health)
    return ModelServer(server.name, version, tokens, code, *asked)


@contextmanager
def meeting_port() -> Iterator[int]:
    """Yield a free TCP port of this host for the ranks to meet at; no other launch is given it until this one ends.

    Ranks listen there once they have imported their framework; until then, for seconds, nothing shows that it is taken.
    Of two launches at one port the later one fails, or, worse, MXNet's servers take the other's workers for their own.
    The promise is the name of a socket, which goes with this process, however it ends.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as promise:
        while True:
            port = free_port()
            try:
                promise.bind(f"\0stagebench-port-{port}")
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    continue
                raise
            yield port
            return
