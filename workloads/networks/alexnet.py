"""AlexNet (Krizhevsky, Sutskever, Hinton 2012) in Caffe's single-tower form.

LRN before pooling as in the paper; groups of 2 where the two towers did not talk
(conv2, conv4, conv5); weights start as the paper's N(0, 0.01). fc6 and
fc7 start as N(0, 0.005), and the biases of conv2, conv4, conv5, fc6 and fc7 at 0.1, as in
Caffe's `bvlc_alexnet`; the paper has 0.01 and 1 there. 60,965,224 parameters.
"""

from stagebench.workloads.build import Builder, gaussian
from stagebench.workloads.graph import Graph


def alexnet() -> Graph:
    """Build AlexNet for 227 x 227 images and 1000 classes."""
    b = Builder("alexnet", (3, 227, 227), 1000)
    zero, tenth = gaussian(0.01), gaussian(0.01, 0.1)
    x = b.conv_relu("conv1", "input", 96, 11, stride=4, init=zero)
    x = b.max_pool("pool1", b.lrn("norm1", x), 3, 2)
    x = b.conv_relu("conv2", x, 256, 5, pad=2, groups=2, init=tenth)
    x = b.max_pool("pool2", b.lrn("norm2", x), 3, 2)
    x = b.conv_relu("conv3", x, 384, 3, pad=1, init=zero)
    x = b.conv_relu("conv4", x, 384, 3, pad=1, groups=2, init=tenth)
    x = b.conv_relu("conv5", x, 256, 3, pad=1, groups=2, init=tenth)
    x = b.flatten("flat", b.max_pool("pool5", x, 3, 2))
    for name in ("fc6", "fc7"):
        x = b.relu(f"{name}_relu", b.dense(name, x, 4096, gaussian(0.005, 0.1)))
        x = b.dropout(f"{name}_drop", x, 0.5)
    b.head(b.dense("fc8", x, 1000, zero))
    return b.graph
