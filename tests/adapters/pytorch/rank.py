"""One rank of a real group, on the network FOLDER/graph.json: python rank.py TASK FOLDER OPTIONS."""

import sys
import time
from pathlib import Path

from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from stagebench.suite.worker.case_parts import Sampling
from stagebench.suite.worker.feed import ResidentFeed, own_synthetic
from stagebench.suite.worker.loop import BLOCK_STEPS, Loop
from stagebench.suite.worker.pass_kinds import USUAL_LOADS
from stagebench.suite.worker.passes import Passes
from stagebench.suite.worker.predictor import prove
from stagebench.suite.worker.queries import Loads, tensors_of
from stagebench.suite.worker.ranks import own_rank
from stagebench.suite.worker.typed_json import to_json
from stagebench.workloads import weights
from tests.support import rank, trainers
from tests.support.trainers import by_strategy

NAP = 0.5  # seconds that all but a pipeline's first stage sleep before a staged iteration
STALE = 5  # updates that rank 0 makes while rank 1 waits
LATE, STEPS = 0.1, 6  # seconds that the last rank takes longer for a step than the others; steps of each rank


def exchange(trainer, graph, folder):
    """With the sizes of DDP's buckets, and of ours."""
    found = rank.exchange(trainer, graph, folder)
    ddp = trainer._native_net._get_ddp_logging_data()["rebuilt_bucket_sizes"]
    ours = [flat.numel() * flat.element_size() for flat in trainer._exchange._flats]
    return dict(found, buckets={"ddp": [int(size) for size in ddp.split(", ")], "ours": ours})


def broadcasts(trainer, graph, folder):
    """How often DDP sent its buffers in each of three blocks of steps: with the exchange, without, and with it."""
    trainer.build(graph, dict(weights.initial(graph)))
    batch, sent, found = rank.placed(trainer, graph), [], []
    send = trainer._ddp._sync_buffers
    trainer._ddp._sync_buffers = lambda: sent.append(send())
    for step in (trainer.step, trainer.step_alone, trainer.step):
        before = len(sent)
        for _ in range(BLOCK_STEPS):
            step(batch)
        found.append(len(sent) - before)
    return {"sent": found}


def train(trainer, graph, folder):
    """Losses of a few native steps on one batch, then of staged ones, and the parameters after both."""
    trainer.build(graph, dict(weights.initial(graph)))
    batch, losses, bubbles, seconds = rank.placed(trainer, graph), [], [], []
    built = trainer.notes()
    for _ in range(6):
        trainer.step(batch)
        losses.append(trainer.loss())
    for _ in range(2):
        begin = time.perf_counter()
        if trainer.setup.rank % trainer.setup.model_parallel_size:
            time.sleep(NAP)
        trainers.staged(trainer, batch)
        seconds.append(time.perf_counter() - begin)
        losses.append(trainer.loss())
        bubbles.append(trainer.bubble())
    trainer.maximum(0.0)
    rank.keep(folder, "trained", trainer, trainer.parameters())
    answers = trainer.predict(batch)
    found = {"losses": losses, "bubbles": bubbles, "seconds": seconds, "answers": answers.tolist()}
    return dict(found, built=built, notes=trainer.notes(), gradient_bytes=trainer.gradient_bytes())


def push(trainer, graph, folder):
    """What one push of rank 0 does while rank 1 waits; then staleness where it is known, and where nobody waits."""
    own = trainer.setup.rank
    trainer.build(graph, dict(weights.initial(graph)))
    batch = rank.placed(trainer, graph)
    trainer.forward(batch)
    trainer.backward()
    rank.keep(folder, "local", trainer, trainer.gradients())
    rank.keep(folder, "before", trainer, trainer.parameters())
    if own == 0:
        trainer.update()
    trainer.maximum(0.0)
    rank.keep(folder, "pushed", trainer, trainer.parameters())
    if own == 1:
        trainer.update()
    trainer.maximum(0.0)
    untrained = trainer.notes()
    trainer.begin_training()
    for turn in range(2):
        for _ in range(STALE if own == 0 else 1):
            if turn == own:
                trainer.step(batch)
        trainer.maximum(0.0)
    turns = trainer.notes()
    trainer.begin_training()
    for _ in range(8):
        trainer.step(batch)
    trainer.maximum(0.0)
    return {"untrained": untrained, "turns": turns, "notes": trainer.notes()}


def lag(trainer, graph, folder):
    """When each step began and ended, on a clock that all ranks here share.

    The last rank is late, and does not begin before the first one has made the steps that it may make alone.
    """
    trainer.build(graph, dict(weights.initial(graph)))
    batch, times, own, made = rank.placed(trainer, graph), [], trainer.setup.rank, Path(folder, "made")
    late, bound = own == trainer.setup.world - 1, trainer.setup.knobs["staleness"]
    alone = STEPS if bound == "any" else int(bound)
    trainer.begin_training()
    trainer.maximum(0.0)
    for step in range(STEPS):
        if own == 0 and step == alone:
            made.touch()
        if late and step == 0:
            appears(made)
        began = time.monotonic()
        time.sleep(LATE if late else 0.0)
        trainer.step(batch)
        times.append([began, time.monotonic()])
    if own == 0:
        made.touch()  # nobody is waited for: these were all
    trainer.maximum(0.0)
    return {"times": times, "late": LATE, "notes": trainer.notes()}


def appears(path, within=120.0):
    """Wait for a file that another rank writes."""
    until = time.monotonic() + within
    while not path.exists():
        assert time.monotonic() < until, "the first rank waits for the late one"
        time.sleep(0.01)


class Traffic(TorchDispatchMode):
    """The collectives of DTensors: name, and the bytes that this rank gives."""

    def __init__(self):
        super().__init__()
        self.given = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if DTensor in types:
            return NotImplemented  # its own tensors come here, too
        name = func.__name__.partition(".")[0]
        if func.namespace == "_c10d_functional" and not name.startswith(("wait", "_wrap")):
            self.given.append([name, args[0].numel() * args[0].element_size()])
        return func(*args, **kwargs or {})


def traffic(trainer, graph, folder):
    """The collectives of a step's forward, and of its backward."""
    trainer.build(graph, dict(weights.initial(graph)))
    batch, found = rank.placed(trainer, graph), []
    for stage in (lambda: trainer.forward(batch), trainer.backward):
        with Traffic() as seen:
            stage()
        found.append(seen.given)
    return {"given": found, "notes": trainer.notes()}


def kernels(trainer, graph, folder):
    """What the pass `kernels` has to tell."""
    trainer.build(graph, dict(weights.initial(graph)))
    setup = trainer.setup
    feed = ResidentFeed(trainer, own_synthetic(graph, setup.batch, setup.seed, setup.replica))
    found = Passes(trainer, feed, None).kernels("")
    return {"busy": found.stages, "names": [[row.stage, row.name] for row in found.rows]}


def infer(predictor, graph, folder):
    """Samples of a query by load, on this rank; then the proof."""
    predictor.load(graph, tensors_of(graph, weights.for_proof(graph)))
    loads = Loads(predictor, graph, Loop(predictor, Sampling(1, 0.0, 3, 0.0), lambda **_: None))
    passes = [loads.run(name) for name in USUAL_LOADS]
    samples = {each.name: each.samples // len(each.step_s) for each in passes}
    proof = prove(predictor, graph, predictor.setup.batch, str(folder / "oracle"))
    return {"samples": samples, "proof": to_json(proof), "notes": predictor.notes()}


TASKS = {
    "infer": infer,
    "prove": rank.prove,
    "exchange": exchange,
    "broadcasts": broadcasts,
    "train": train,
    "push": push,
    "lag": lag,
    "traffic": traffic,
    "kernels": kernels,
}

if __name__ == "__main__":
    rank.main(by_strategy("pytorch"), TASKS, strategy="ddp", tuning="tuned")
    # The names of the threads that outlive the group.
    left = "".join(path.read_text() for path in Path("/proc/self/task").glob("*/comm"))
    Path(sys.argv[2], f"threads-{own_rank().rank}.txt").write_text(left)
