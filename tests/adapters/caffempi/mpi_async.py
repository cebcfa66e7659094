"""Run under mpiexec: an asynchronous server, first asked in turns, then all at once.

Arguments: the output file, "sgd" or "adam", and "staged" where gradients and weights are to lie in memory that MPI does
not send from.
"""

import json
import sys

from stagebench.adapters.caffempi.transfer import MPI
from stagebench.suite.worker.contract import SGD, Adam
from stagebench.suite.worker.feed import share, synthetic
from stagebench.workloads import weights
from stagebench.workloads.networks.mnist import mnist_small
from tests.adapters.caffempi.late import staged as staged_memory
from tests.support import trainers
from tests.support.trainers import by_strategy

trainer_of = by_strategy("caffempi")

SAMPLES, STEPS = 2, 6
RULES = {"sgd": SGD(0.01, 0.9, 0.001), "adam": Adam(1e-3, 0.9, 0.999, 1e-3, 0.001)}
COMM = MPI.COMM_WORLD


def made(strategy, world, knobs):
    rank = COMM.rank if world > 1 else 0
    place = {"rank": rank, "world": world, "local_rank": rank}
    rule = RULES[sys.argv[2]]
    trainer = trainer_of(trainers.setup(**place, strategy=strategy, batch=SAMPLES, knobs=knobs, optimiser=rule))
    if "staged" in sys.argv:
        trainer.memory = staged_memory
    trainer.start()
    return trainer


def in_turns(trainer, batch, staged):
    """Each rank's whole step while the others wait; the weights that the last rank has got."""
    trainer.build(mnist_small(), dict(weights.initial(mnist_small())))
    trainer.begin_training()
    for turn in range(STEPS):
        trainer.maximum(0.0)
        if turn % COMM.size != COMM.rank:
            continue
        if staged:
            trainers.staged(trainer, batch)
        else:
            trainer.step(batch)
    trainer.maximum(0.0)
    with trainer._mpi_lock:  # the server's thread calls MPI too
        return COMM.bcast(trainer.parameters(), (STEPS - 1) % COMM.size)


def by_hand(hosts):
    """The same updates by one rank, whose gradient is divided by the ranks as theirs is; weights lag as theirs do."""
    trainer = made("single", 1, {})
    trainer.setup = trainer.setup._replace(world=COMM.size)
    trainer.build(mnist_small(), dict(weights.initial(mnist_small())))
    arena = trainer._net.arena
    seen = [arena.parameters.clone() for _ in hosts]
    for turn in range(STEPS):
        rank = turn % COMM.size
        newest = arena.parameters.clone()
        arena.parameters.copy_(seen[rank])
        trainer.forward(trainer.to_device(hosts[rank]))
        trainer.backward()
        arena.parameters.copy_(newest)
        trainer.update()
        seen[rank] = arena.parameters.clone()
    return trainer.parameters()


def together(trainer, batch):
    """Losses, staleness and updates of a training in which nobody waits."""
    trainer.build(mnist_small(), dict(weights.initial(mnist_small())))
    trainer.begin_training()
    losses = []
    for _ in range(STEPS * 5):
        trainer.step(batch)
        losses.append(trainer.loss())
    notes = trainer.notes()
    trainer.maximum(0.0)
    trainer.communicate()  # as the pass comm_only does, without a backward
    trainer.maximum(0.0)
    assert not trainer.gradients()["fc1.weight"].any()
    updates = 0 if trainer._server is None else trainer._server._updates
    return losses, notes, updates


def main():
    whole = synthetic(mnist_small(), SAMPLES * COMM.size, 1)
    hosts = [share(whole, rank, SAMPLES) for rank in range(COMM.size)]
    expected = by_hand(hosts)
    result = {"world": COMM.size, "equal": {}}
    for overlap, progress in (("none", "layers"), ("layerwise", "thread"), ("merged", "layers")):
        trainer = made("parameter_server_async", COMM.size, {"overlap": overlap, "progress": progress})
        batch = trainer.to_device(hosts[COMM.rank])
        for staged in (False, True):
            found = in_turns(trainer, batch, staged)
            same = [bool((found[name] == expected[name]).all()) for name in expected]
            result["equal"][f"{overlap} {progress} {staged}"] = all(same)
        turns = trainer.notes()["staleness"]
        losses, notes, updates = together(trainer, batch)
        trainer.end_exchange()
    result["turns"] = COMM.gather(turns)
    result["losses"], result["notes"] = COMM.gather(losses), COMM.gather(notes)
    result["updates"] = COMM.allreduce(updates, MPI.MAX)
    if COMM.rank == 0:
        with open(sys.argv[1], "w") as stream:
            json.dump(result, stream)
    MPI.COMM_WORLD.Barrier()
    trainer.close()


main()
