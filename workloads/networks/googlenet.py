"""GoogLeNet (Szegedy et al. 2014, "Going deeper with convolutions") as trained.

With LRN and both auxiliary heads (weight 0.3, dropout 0.7), ceil pooling and the
initialisers of Caffe's `bvlc_googlenet`. 13,378,280 parameters.
"""

from stagebench.workloads.build import Builder, xavier
from stagebench.workloads.graph import Graph

# block: 1x1, 3x3 reduce, 3x3, 5x5 reduce, 5x5, pool projection (the paper's table 1)
BLOCKS = (
    ("3a", (64, 96, 128, 16, 32, 32)),
    ("3b", (128, 128, 192, 32, 96, 64)),
    ("4a", (192, 96, 208, 16, 48, 64)),
    ("4b", (160, 112, 224, 24, 64, 64)),
    ("4c", (128, 128, 256, 24, 64, 64)),
    ("4d", (112, 144, 288, 32, 64, 64)),
    ("4e", (256, 160, 320, 32, 128, 128)),
    ("5a", (256, 160, 320, 32, 128, 128)),
    ("5b", (384, 192, 384, 48, 128, 128)),
)
INIT = xavier(0.2)


def inception(b: Builder, name: str, x: str, widths: tuple) -> str:
    """Add four branches, joined along channels."""
    one, reduce3, three, reduce5, five, project = widths
    p = f"inception_{name}_"
    branches = [
        b.conv_relu(f"{p}1x1", x, one, 1, init=INIT),
        b.conv_relu(f"{p}3x3", b.conv_relu(f"{p}3x3_reduce", x, reduce3, 1, init=INIT), three, 3, pad=1, init=INIT),
        b.conv_relu(f"{p}5x5", b.conv_relu(f"{p}5x5_reduce", x, reduce5, 1, init=INIT), five, 5, pad=2, init=INIT),
        b.conv_relu(f"{p}pool_proj", b.max_pool(f"{p}pool", x, 3, 1, pad=1, ceil=True), project, 1, init=INIT),
    ]
    return b.concat(f"{p}output", *branches)


def auxiliary(b: Builder, name: str, x: str) -> None:
    """Add a classifier on an inner block, weighted 0.3."""
    x = b.conv_relu(f"{name}_conv", b.avg_pool(f"{name}_ave_pool", x, 5, 3), 128, 1, init=INIT)
    x = b.relu(f"{name}_fc_relu", b.dense(f"{name}_fc", b.flatten(f"{name}_flat", x), 1024, INIT))
    b.head(b.dense(f"{name}_classifier", b.dropout(f"{name}_drop_fc", x, 0.7), 1000, xavier()), 0.3)


def googlenet() -> Graph:
    """Build GoogLeNet for 224 x 224 images and 1000 classes, with three heads: the last one is the main classifier."""
    b = Builder("googlenet", (3, 224, 224), 1000)
    x = b.conv_relu("conv1", "input", 64, 7, stride=2, pad=3, init=INIT)
    x = b.lrn("norm1", b.max_pool("pool1", x, 3, 2, ceil=True))
    x = b.conv_relu("conv2", b.conv_relu("conv2_reduce", x, 64, 1, init=INIT), 192, 3, pad=1, init=INIT)
    x = b.max_pool("pool2", b.lrn("norm2", x), 3, 2, ceil=True)
    for name, widths in BLOCKS:
        x = inception(b, name, x, widths)
        if name in ("4a", "4d"):
            auxiliary(b, "loss1" if name == "4a" else "loss2", x)
        if name in ("3b", "4e"):
            x = b.max_pool(f"pool{name[0]}", x, 3, 2, ceil=True)
    x = b.flatten("flat", b.avg_pool("pool5", x, 7, 1))
    b.head(b.dense("loss3_classifier", b.dropout("pool5_drop", x, 0.4), 1000, xavier()))
    return b.graph
