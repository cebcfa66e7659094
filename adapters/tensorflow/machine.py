"""Threads, devices, the layout of a network on them, the way of inputs to them, and versions."""

from typing import Any, Dict, List, Optional

import numpy as np
import tensorflow as tf

from stagebench.adapters.tensorflow.lower import Inputs, Style
from stagebench.adapters.tensorflow.net import Layout
from stagebench.suite.worker.contract import Setup, chosen
from stagebench.suite.worker.gpus import no_cuda, own_devices
from stagebench.suite.worker.member import Member
from stagebench.suite.worker.peaks import Yardstick, on_devices
from stagebench.workloads.graph import Graph

INTER_OP = 1  # next to the device's own thread: a network runs one operation after the other


class OnDevice(Member):
    """A rank's devices, and a network's layout and operations on them."""

    graph: Graph
    layout: Layout
    style: Style

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._images = chosen(setup, "layout", default="NHWC", tuned="NCHW" if setup.device == "cuda" else "NHWC")
        self.devices: List[str] = []  # this rank's, by TensorFlow's names; set by `start`

    def lay_out(self, graph: Graph, training: bool = True) -> None:
        """Set `graph`, `layout` and `style`."""
        self.graph, self.layout = graph, Layout(graph, self._images)
        images, precision = self._images, self.setup.precision
        grouped = not any(layer.attrs.get("groups", 1) > 1 for layer in graph.layers) or grouped_gradients(
            self.devices[0], images, precision
        )
        self.style = Style(self.setup.tuned, images, precision, grouped, self.layout.folded, training)

    def placed(self, inputs: Any) -> Inputs:
        """Place NumPy's NCHW or tf.data's NHWC on the scope's device, in the network's layout and type; or tokens."""
        if len(inputs.shape) == 2:
            return tf.identity(tf.cast(inputs, tf.int64))
        channels_last = self._images == "NHWC"
        if not tf.is_tensor(inputs):
            inputs = tf.constant(np.ascontiguousarray(inputs.transpose(0, 2, 3, 1)) if channels_last else inputs)
        elif not channels_last:
            inputs = tf.transpose(inputs, [0, 3, 1, 2])
        # A cast to an equal type returns tf.data's own tensor: a device would copy it in the forward.
        return tf.identity(tf.cast(inputs, self.setup.precision))

    def synchronize(self) -> None:
        if self.setup.device == "cuda":
            tf.test.experimental.sync_devices()

    def peak_device_bytes(self) -> Optional[int]:
        if self.setup.device != "cuda":
            return None
        return sum(tf.config.experimental.get_memory_info(f"GPU:{n}")["peak"] for n in range(self.setup.devices))

    def yardstick(self) -> Optional[Yardstick]:
        return super().yardstick() or yardstick(self.setup, self.devices)


def prepare(setup: Setup, at_once: int = 0) -> List[str]:
    """Set threads; return this rank's devices, by TensorFlow's names. Unavailable names what this machine lacks.

    Logical devices of a CPU share one pool, which has the threads of as many as work `at_once`; 0: all of them.
    """
    threads("intra_op", setup.threads * ((at_once or setup.devices) if setup.device == "cpu" else 1))
    # Logical devices, and collectives during the computation, run at the same time.
    threads("inter_op", INTER_OP * setup.devices + (setup.world > 1))
    return cuda(setup) if setup.device == "cuda" else cpus(setup.devices)


def threads(pool: str, count: int) -> None:
    """Set the size of one of TensorFlow's two pools; RuntimeError if it runs already with another size."""
    if getattr(tf.config.threading, f"get_{pool}_parallelism_threads")() != count:
        getattr(tf.config.threading, f"set_{pool}_parallelism_threads")(count)


def cpus(count: int) -> List[str]:
    """Return the CPU, cut into logical devices if there are several."""
    if count > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        cut = tf.config.get_logical_device_configuration(cpu) or []
        if len(cut) < count:
            tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
    return [f"CPU:{index}" for index in range(count)]


def cuda(setup: Setup) -> List[str]:
    found = tf.config.list_physical_devices("GPU")
    if not found:
        if tf.test.is_built_with_cuda():
            built, remedy = "with CUDA", "see whether nvidia-smi lists a device and its driver"
        else:
            built, remedy = "without CUDA", "make its environment anew: stagebench env make tensorflow --gpu"
        raise no_cuda(f"TensorFlow {tf.__version__} is built {built}", remedy)
    own = [found[number] for number in own_devices(setup, len(found))]
    tf.config.set_visible_devices(own, "GPU")
    for each in own:
        tf.config.experimental.set_memory_growth(each, True)  # else one process takes all memory
    # TF32 rounds factors to 11 bits: it is not the float32 that the record names.
    tf.config.experimental.enable_tensor_float_32_execution(False)
    if setup.knobs.get("deterministic") == "on":
        tf.config.experimental.enable_op_determinism()
    return [f"GPU:{index}" for index in range(setup.devices)]


def grouped_gradients(device: str, layout: str, precision: str) -> bool:
    """Check for gradients of grouped convolutions; a CPU has them through oneDNN alone."""
    shape = [1, 2, 2, 4] if layout == "NHWC" else [1, 4, 2, 2]
    with tf.device(device):
        images, filters = tf.ones(shape, precision), tf.ones([1, 1, 2, 4], precision)

        @tf.function(autograph=False)
        def gradients() -> Any:
            y = tf.nn.conv2d(images, filters, 1, "VALID", data_format=layout)
            return tf.gradients(tf.reduce_sum(y), [images, filters])

        try:
            gradients()
        except (tf.errors.UnimplementedError, tf.errors.InvalidArgumentError):
            return False
    return True


def yardstick(setup: Setup, devices: List[str]) -> Yardstick:
    def put(array: Any, dtype: str, device: str) -> Any:
        with tf.device(device):
            return tf.constant(array, dtype)

    def product(value: Any) -> Any:
        return tf.linalg.matmul(value, value)

    return on_devices(f"TensorFlow {tf.__version__}", setup.precision, devices, put, product, tf.bitwise.invert)


def versions(device: str) -> Dict[str, str]:
    found = {"tensorflow": tf.__version__}  # asking Keras for its version would load it
    built: Dict[str, Any] = dict(tf.sysconfig.get_build_info())
    if device == "cuda":
        found.update({name: str(built[key]) for name, key in (("cuda", "cuda_version"), ("cudnn", "cudnn_version"))})
        gpu = tf.config.get_visible_devices("GPU")[0]
        found["gpu"] = tf.config.experimental.get_device_details(gpu).get("device_name", "unknown")
    return found
