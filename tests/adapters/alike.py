"""The behaviour that trainers of one process share; an adapter's tests inherit it and name what is their own.

Conformance proves an adapter's numbers, its dropout and its predictions. Oldest Python: 3.6.
"""

import importlib
from itertools import product

import numpy as np
import pytest

from stagebench.suite.worker.contract import SGD, Adam, Unavailable
from stagebench.suite.worker.feed import synthetic
from stagebench.suite.worker.queries import tensors_of
from stagebench.suite.worker.sources import ArraySource
from stagebench.suite.worker.threaded import batches_of_indices
from stagebench.suite.worker.view import View
from stagebench.workloads import weights
from stagebench.workloads.build import Builder
from stagebench.workloads.kinds import KINDS
from stagebench.workloads.networks import by_name
from tests.support import data, networks, proofs, trainers
from tests.support.errors import raising
from tests.support.jobs import READ_ONCE
from tests.support.trainers import by_strategy

USUAL = Adam(1e-3, 0.9, 0.999, 1e-7, 0.0)
# An epsilon as large as the gradients' roots: one that is in the wrong place shows at once.
LARGE = Adam(0.01, 0.8, 0.99, 0.05, 0.1)
# Of the five updates of `one_convolution` the first ones are clipped, the last ones are not.
CLIPPED = SGD(0.01, 0.9, 1e-2, clip=3.9)
RULES = {"usual": USUAL, "large": LARGE, "sgd": SGD(0.01, 0.9, 1e-2), "clipped": CLIPPED}
RULES["matrices"] = RULES["sgd"]._replace(decays="matrices")
EVERY = tuple(
    {"rule": rule, "precision": precision, "tuning": tuning}
    for rule, precision in (("large", "float32"), *product(("usual", "large", "clipped", "matrices"), ("float64",)))
    for tuning in ("default", "tuned")
)


def trainer_of(adapter, **options):
    """The fixture: a function that makes a started trainer of one rank; all are closed at the end."""

    @pytest.fixture
    def trainer():
        with trainers.started(by_strategy(adapter), **dict({"tuning": "tuned", "batch": 2}, **options)) as make:
            yield make

    return trainer


def named(options):
    return "-".join(map(str, options.values()))


def one_step(trainer, graph, samples):
    """Loss, gradients and what a step leaves."""
    trainer.build(graph, networks.drawn(graph))
    trainer.forward(trainer.to_device(samples))
    trainer.backward()
    trainer.communicate()
    gradients = trainer.gradients()
    trainer.update()
    return trainer.loss(), gradients, trainer.parameters()


def assert_queries_are_apart(predictor, tuning):
    """Queries that are all begun before one is fetched, of different numbers of samples, have their own answers."""
    with trainers.started(predictor, tuning=tuning, batch=8) as make:
        ours = make()
        for graph in (networks.two_heads(), networks.text()):
            ours.load(graph, tensors_of(graph, networks.drawn(graph)))
            queries = [synthetic(graph, samples, seed).inputs for seed, samples in enumerate((8, 8, 3, 1, 8))]
            begun = [(query, ours.run(ours.place(query))) for query in queries]
            for query, found in begun:
                np.testing.assert_allclose(ours.fetch(found), ours.answer(query), rtol=1e-4, atol=1e-6)


class Alike:
    """The fixture `trainer` makes a started trainer by keywords."""

    framework = ""  # as its errors call it
    library = ""  # as its yardstick calls it; "": NumPy's serves it
    counting = ("tuned",)  # each has layers of its own
    dropping = ({},)  # options, each of which draws masks in its own way
    module = ""  # of which its versions tell the release
    timing = ({"tuning": "default"}, {"tuning": "tuned"})  # each times layers in its own way; (): none
    in_order = True  # a backward goes through the layers in turn
    lowering = ({"tuning": "default"}, {"tuning": "tuned"})  # each has layers of its own
    updates = EVERY
    exact = 1e-7  # distance of parameters after a step in float64 from the reference's
    near = 1e-11  # distance of an update in float64 from the rule's
    meets = None  # a strategy whose ranks meet at MASTER_ADDR
    reading = ({},)  # options, each with a reader of arrays of its own
    words = ""  # of that reader

    def pytest_generate_tests(self, metafunc):
        if "update" in metafunc.fixturenames:
            metafunc.parametrize("update", self.updates, ids=named)
        if "lowered" in metafunc.fixturenames:
            metafunc.parametrize("lowered", self.lowering, ids=named)
        if "timed" in metafunc.fixturenames:
            metafunc.parametrize("timed", self.timing, ids=named)

    def devices(self):
        """How many GPUs the framework has here."""
        return 0

    def draw(self):
        """A random number of the framework's, as other programs draw them."""

    def test_it_reports_its_release_and_that_it_is_alone(self, trainer):
        joined, module = trainer().start(), importlib.import_module(self.module)
        assert (joined.rank, joined.world, joined.transport, joined.devices) == (0, 1, "none", 1)
        assert joined.versions[self.module] == module.__version__

    def test_layers_are_timed_one_by_one(self, trainer, timed):
        ours = trainer(**dict({"batch": 8}, **timed))
        ready = [row.ready_s for row in trainers.timed_layers(ours, networks.two_heads()) if row.bytes]
        assert ready == sorted(ready, reverse=True) if self.in_order else not any(ready)
        # A framework may refuse a forward while a gradient is held.
        trainers.staged(ours, ours.to_device(synthetic(networks.two_heads(), 8, 1)))

    def test_counting_multiply_accumulates_changes_nothing(self, trainer):
        for graph, tuning in product((networks.two_heads(), by_name()["gpt_char"].graph()), self.counting):
            ours = trainer(tuning=tuning)
            ours.build(graph, networks.drawn(graph))
            before = ours.parameters()
            assert ours.macs() == graph.macs
            after = ours.parameters()
            assert all(np.array_equal(value, after[key]) for key, value in before.items())

    def test_masks_of_dropout_follow_the_seed_and_the_rank(self, trainer):
        graph = networks.perceptron()
        for options in self.dropping:
            ours, losses = trainer(batch=8, **options), []
            for changes in ({}, {}, {"seed": 2}, {"rank": 1}):
                ours.setup = ours.setup._replace(**dict({"seed": 1, "rank": 0}, **changes))
                ours.build(graph, dict(weights.initial(graph)))
                ours.step(ours.to_device(synthetic(graph, 8, 1)))
                losses.append(ours.loss())
                self.draw()
            assert losses[0] == losses[1]
            assert len(set(losses)) == 3

    @pytest.mark.parametrize("kind", [*sorted(KINDS), "branches"])
    def test_a_kind_means_what_the_graph_says(self, trainer, kind, lowered):
        """In float64, as the reference, which finite differences prove: forward, backward and running statistics."""
        graph = networks.branches() if kind == "branches" else self.cases(kind)
        samples, ours = synthetic(graph, 4, 3), trainer(precision="float64", batch=4, **lowered)
        expected = one_step(proofs.reference(), graph, samples)
        found = one_step(ours, graph, samples)
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-10)
        for part, near in ((1, 1e-7), (2, self.exact)):
            assert set(found[part]) == set(expected[part])
            for name, theirs in expected[part].items():
                np.testing.assert_allclose(found[part][name], theirs, rtol=near, atol=near / 100, err_msg=name)
        assert ours.macs() == graph.macs

    def cases(self, kind):
        """The network of a kind's cases."""
        return networks.every_case(kind)

    def test_every_update_is_the_rule_s(self, trainer, update):
        options = dict(update)
        rule = RULES[options.pop("rule")]
        ours = trainer(**dict(options, batch=4, optimiser=rule))
        proofs.assert_updates_follow(
            ours, networks.one_convolution(), rule, self.near if ours.setup.precision == "float64" else 2e-5
        )

    def test_arrays_come_in_the_order_of_all_adapters(self, trainer, tmp_path):
        source = ArraySource(data.noise(tmp_path / "digits.npz", 10, side=8), (1, 8, 8))
        view = View(source, READ_ONCE._replace(repeat=2), 1, str(tmp_path / "skipped.txt"))
        b = Builder("flat", (1, 8, 8), 10)
        b.head(b.dense("out", b.flatten("f", "input"), 10))
        for options in self.reading:
            ours = trainer(readers=2, batch=4, **options)
            ours.build(b.graph, dict(weights.initial(b.graph)))
            ours.open_input(view)
            wanted = batches_of_indices(view, ours.setup)
            for _ in range(12):  # runs into the third epoch
                batch, positions = ours.as_numpy(ours.next_batch()), next(wanted)
                np.testing.assert_array_equal(batch.inputs, np.stack([view.sample(at)[0] for at in positions]))
                assert batch.labels.tolist() == [view.sample(at)[1] for at in positions]
            assert self.words in ours.notes()["reader"]

    def test_a_missing_device_is_named(self, trainer):
        if self.devices():
            pytest.skip("there is a device")
        with pytest.raises(Unavailable, match="CUDA device: " + self.framework + " .*device = 'cpu'"):
            trainer(device="cuda")

    def test_a_missing_meeting_place_is_named(self, trainer, monkeypatch):
        if self.meets is None:
            pytest.skip("its ranks do not meet there")
        monkeypatch.delenv("MASTER_ADDR", raising=False)
        with raising(ValueError, "MASTER_ADDR"):
            trainer(strategy=self.meets)

    def yardstick(self, ours):
        """The framework's own way to measure the device's peaks."""
        raise NotImplementedError

    def test_its_own_yardstick_multiplies_and_copies(self, trainer):
        if not self.library:
            pytest.skip("NumPy's serves it")
        ours = trainer()
        yardstick = self.yardstick(ours)
        (product,), (copy,) = yardstick.product(16)(), yardstick.copy(64)()
        assert tuple(product.shape) == (16, 16)
        assert np.asarray(copy.asnumpy() if hasattr(copy, "asnumpy") else copy).nbytes == 64
        assert yardstick.library.startswith(self.library + " ")
        assert ours.yardstick().library.startswith("NumPy ")  # which serves every framework alike on CPUs
