"""ResNet-50 and ResNet-152 v1.5 (He et al. 2015; the stride sits on the 3x3 convolution, as trained today).

He-normal weights over fan-out, every gamma 1 (He et al. 2015). 25,557,032 and 60,192,808 parameters.
"""

from stagebench.workloads.build import Builder
from stagebench.workloads.graph import Graph

STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))  # width, stride of the first block
HE = {"weight": {"kind": "he_fan_out"}}


def bottleneck(b: Builder, name: str, x: str, width: int, stride: int, project: bool) -> str:
    """Add a block of 1x1, 3x3, 1x1, in parallel with an identity or a projection."""
    y = b.relu(f"{name}_a_relu", b.conv_bn(f"{name}_a", x, width, 1, init=HE))
    y = b.relu(f"{name}_b_relu", b.conv_bn(f"{name}_b", y, width, 3, stride=stride, pad=1, init=HE))
    y = b.conv_bn(f"{name}_c", y, 4 * width, 1, init=HE)
    if project:
        x = b.conv_bn(f"{name}_proj", x, 4 * width, 1, stride=stride, init=HE)
    return b.relu(f"{name}_relu", b.add(f"{name}_sum", y, x))


def resnet50() -> Graph:
    """Build ResNet-50 for 224 x 224 images and 1000 classes."""
    return resnet("resnet50", (3, 4, 6, 3))


def resnet152() -> Graph:
    """Build ResNet-152 for 224 x 224 images and 1000 classes."""
    return resnet("resnet152", (3, 8, 36, 3))


def resnet(name: str, depths: tuple) -> Graph:
    """Build a ResNet from each stage's number of blocks.

    Blocks are named as in the authors' models: a to f, or a, b1, b2, ... in a stage of more than six.
    """
    b = Builder(name, (3, 224, 224), 1000)
    x = b.relu("conv1_relu", b.conv_bn("conv1", "input", 64, 7, stride=2, pad=3, init=HE))
    x = b.max_pool("pool1", x, 3, 2, pad=1)
    for stage, ((width, stride), blocks) in enumerate(zip(STAGES, depths), start=2):
        for block in range(blocks):
            first = block == 0
            letter = "abcdef"[block] if blocks <= 6 else f"b{block}" if block else "a"
            x = bottleneck(b, f"res{stage}{letter}", x, width, stride if first else 1, first)
    x = b.flatten("flat", b.avg_pool("pool5", x, 7, 1))
    b.head(b.dense("fc", x, 1000, {"weight": {"kind": "gaussian", "std": 0.01}}))
    return b.graph
