"""The small CNNs of the data-parallel article, in its PyTorch definitions (padding 1).

The article's text gives the large one 2,636,554 parameters, its PyTorch code 4,104,202: `mnist_large` is the code's.
`mnist_stated` is a network with exactly the parameters that the text states, in the shapes that meet the number;
no layout of the article's code has them. Initialised as that code leaves it: PyTorch's defaults.
"""

from stagebench.workloads.build import Builder, uniform
from stagebench.workloads.graph import Graph


def mnist_small() -> Graph:
    b = Builder("mnist_small", (1, 28, 28), 10)
    x = b.max_pool("pool1", b.conv_relu("conv1", "input", 32, 3, pad=1, init=uniform(9)), 2, 2)
    x = b.relu("fc1_relu", b.dense("fc1", b.flatten("flat", x), 64, uniform(32 * 14 * 14)))
    b.head(b.dense("fc2", x, 10, uniform(64)))
    return b.graph


def mnist_large() -> Graph:
    return stacked("mnist_large", (128, 256, 512), (512, 512), ceil=False)


def mnist_stated() -> Graph:
    return stacked("mnist_stated", (64, 128, 256, 512), (512, 64, 64), ceil=True)


def stacked(name: str, convolutions: tuple, dense: tuple, ceil: bool) -> Graph:
    """Build a network of convolutions, each pooled, and dense layers, given by their widths."""
    b = Builder(name, (1, 28, 28), 10)
    x, channels, extent = "input", 1, 28
    for index, width in enumerate(convolutions, start=1):
        x = b.conv_relu(f"conv{index}", x, width, 3, pad=1, init=uniform(9 * channels))
        x, channels, extent = b.max_pool(f"pool{index}", x, 2, 2, ceil=ceil), width, (extent + ceil) // 2
    x, features = b.flatten("flat", x), channels * extent**2
    for index, width in enumerate(dense, start=1):
        x, features = b.relu(f"fc{index}_relu", b.dense(f"fc{index}", x, width, uniform(features))), width
    b.head(b.dense(f"fc{len(dense) + 1}", x, 10, uniform(features)))
    return b.graph
