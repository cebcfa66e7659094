"""Brief sessions of the reference adapter, and who listens to them."""

from stagebench.suite.contracts.case import Case
from stagebench.suite.plan import Resolved
from stagebench.suite.results.run_folder import RunFolder
from stagebench.suite.session.observer import Observer
from stagebench.suite.session.resumable import Session, Settings
from stagebench.suite.worker.case_parts import Sampling
from stagebench.workloads.networks import by_name
from tests.support import plans

BRIEF = Sampling(warmup_steps=5, warmup_limit=0.2, steps=2, seconds=0.05, processes=1, quick=True)
TWICE = BRIEF._replace(processes=2)
SETTINGS = Settings(proofs=False)

PLAN = plans.brief({"adapter": "reference", "strategy": "single", "precision": "float64", "batch": 2})


def case(**changes) -> Case:
    graph = by_name()["mnist_small"].graph()
    return Case("reference", "single", "mnist_small", batch=2, precision="float64", sampling=BRIEF,
                graph_digest=graph.digest, knobs={"shards": 1}).on(**changes)  # fmt: skip


class Listener(Observer):
    def __init__(self, stop_after: int | None = None):
        self.order, self.outcomes, self.stop_after, self.ended = [], [], stop_after, 0
        self.refusals = []

    def begin(self, entries, processes, done):
        self.refusals = [(entry.id, entry.outcome, entry.reason) for entry in entries if entry.outcome]

    def started(self, case, repeat):
        self.order.append((case.batch, repeat))

    def finished(self, case, record):
        self.outcomes.append(record.outcome)
        if len(self.outcomes) == self.stop_after:
            raise KeyboardInterrupt

    def end(self):
        self.ended += 1


def run(folder: RunFolder, cases, listener=None, settings=SETTINGS, settings_of_python=None):
    resolved = [Resolved(each, None, "") for each in cases]
    return Session(folder, resolved, settings_of_python or {}, listener or Listener(), settings).run()
