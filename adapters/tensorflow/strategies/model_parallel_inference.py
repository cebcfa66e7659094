"""`model_parallel_inference`: each device of this process holds a stage; a query goes through all in microbatches."""

import tensorflow as tf

from stagebench.adapters.tensorflow import machine
from stagebench.adapters.tensorflow.inference import TensorFlowPredictor
from stagebench.adapters.tensorflow.lower import Inputs, Tensor
from stagebench.adapters.tensorflow.net import compiled
from stagebench.adapters.tensorflow.stages import StageNet
from stagebench.adapters.tensorflow.strategies.model_parallel import through
from stagebench.suite.worker.contract import Joined
from stagebench.suite.worker.member import Notes
from stagebench.suite.worker.pipeline_stages import stages
from stagebench.suite.worker.trainer import Arrays
from stagebench.workloads.graph import Graph


class StagedPredictor(TensorFlowPredictor):
    """A predictor of one network on several devices."""

    def start(self) -> Joined:
        self.devices = machine.prepare(self.setup)
        versions = machine.versions(self.setup.device)
        return Joined(0, 1, "memory: activations between devices", versions, len(self.devices))

    def _make(self, graph: Graph, tensors: Arrays) -> None:
        """Cut the network; the executor lets devices work on different microbatches of a query."""
        self._xla = "off"
        pieces, seed = int(self.setup.knobs["microbatches"]), (self.setup.seed, 0)
        cut = stages(graph, len(self.devices))
        homes = {
            layer.name: device
            for stage, device in zip(cut, self.devices)
            for layer in graph.layers[stage.begin : stage.end]
        }
        held = {name: self._held(tensor, homes[name.rpartition(".")[0]]) for name, tensor in tensors.items()}
        parts = [StageNet(graph, held, self.style, seed, stage, device) for stage, device in zip(cut, self.devices)]
        self._borders = [stage.begin for stage in cut]

        def answer(inputs: Inputs) -> Tensor:
            samples = inputs.shape[0]
            count = min(pieces, samples)
            microbatches = tf.split(self._arranged(inputs), [(samples + at) // count for at in range(count)])
            return tf.concat([through(parts, each)[-1] for each in microbatches], 0)

        self._answer = compiled(answer)

    def notes(self) -> Notes:
        about = {"microbatches": self.setup.knobs["microbatches"], "stages begin at": self._borders}
        return dict(super().notes(), stages=about)
