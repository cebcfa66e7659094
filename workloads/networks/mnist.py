"""The small CNNs of the data-parallel article, in its PyTorch definitions (padding 1).

The article's text gives the large one 2,636,554 parameters, its PyTorch code 4,104,202: `mnist_large` is the code's.
`mnist_stated` is a network with exactly the parameters that the text states, in the shapes that meet the number;
no layout of the article's code has them. Initialised as that code leaves it: PyTorch's defaults.
"""

from workloads.build import Builder, uniform
from workloads.graph import Graph


def mnist_small() -> Graph:
    b = Builder("mnist_small", (1, 28, 28), 10)
    x = b.max_pool("pool1", b.conv_relu("conv1", "input", 32, 3, pad=1, init=uniform(9)), 2, 2)
    x = b.relu("fc1_relu", b.dense("fc1", b.flatten("flat", x), 64, uniform(32 * 14 * 14)))
    b.head(b.dense("fc2", x, 10, uniform(64)))
    return b.graph


def mnist_large() -> Graph:
    b = Builder("mnist_large", (1, 28, 28), 10)
    x, channels = "input", 1
    for index, width in enumerate((128, 256, 512), start=1):
        x = b.conv_relu(f"conv{index}", x, width, 3, pad=1, init=uniform(9 * channels))
        x, channels = b.max_pool(f"pool{index}", x, 2, 2), width
    x, features = b.flatten("flat", x), 512 * 3 * 3
    for name in ("fc1", "fc2"):
        x, features = b.relu(f"{name}_relu", b.dense(name, x, 512, uniform(features))), 512
    b.head(b.dense("fc3", x, 10, uniform(features)))
    return b.graph


def mnist_stated() -> Graph:
    b = Builder("mnist_stated", (1, 28, 28), 10)
    x, channels = "input", 1
    for index, width in enumerate((64, 128, 256, 512), start=1):
        x = b.conv_relu(f"conv{index}", x, width, 3, pad=1, init=uniform(9 * channels))
        x, channels = b.max_pool(f"pool{index}", x, 2, 2, ceil=True), width
    x, features = b.flatten("flat", x), 512 * 2 * 2
    for name, width in (("fc1", 512), ("fc2", 64), ("fc3", 64)):
        x, features = b.relu(f"{name}_relu", b.dense(name, x, width, uniform(features))), width
    b.head(b.dense("fc4", x, 10, uniform(features)))
    return b.graph
