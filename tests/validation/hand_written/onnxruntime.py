"""ONNX Runtime: a session with all optimisations, on one thread."""

import onnxruntime as ort
from hand_written.onnx_graph import Graph


class Answers:
    def __init__(self, network, form, tensors, inputs, way="contributed"):
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
        model = Graph(network, form, tensors, inputs, way != "onnx").model
        self.session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.bound = way == "bound" and self.session.io_binding()

    def answer(self, inputs):
        if not self.bound:
            return self.session.run(None, {"x": inputs})[0]
        self.bound.bind_cpu_input("x", inputs)
        self.bound.bind_output(self.session.get_outputs()[0].name)
        self.session.run_with_iobinding(self.bound)
        return self.bound.copy_outputs_to_cpu()[0]
