"""The five networks as a Gluon user writes them by hand: what the adapter's speed is held against.

Layers are created in the order in which the workload's graph has them, so that weights
can be handed over one after the other.
"""

import mxnet as mx
from mxnet import gluon
from mxnet.gluon import nn

from stagebench.adapters.mxnet.lower import composed_lrn


class Norm(gluon.HybridBlock):
    """Local response normalisation: Gluon has no layer for it, and MXNet's operator has a wrong gradient."""

    def __init__(self, channels):
        super().__init__()
        self._channels = channels

    def hybrid_forward(self, F, x):  # noqa: N803 - Gluon's name
        return composed_lrn(F, x, self._channels, 5, 1e-4, 0.75, 1.0, True)


def stacked(*layers):
    sequence = nn.HybridSequential()
    sequence.add(*layers)
    return sequence


def conv(channels, kernel, **options):
    return nn.Conv2D(channels, kernel, activation="relu", **options)


def dense(units):
    return nn.Dense(units, activation="relu")


def mnist_small():
    return stacked(conv(32, 3, padding=1), nn.MaxPool2D(2, 2), nn.Flatten(), dense(64), nn.Dense(10))


def mnist_large():
    features = [layer for width in (128, 256, 512) for layer in (conv(width, 3, padding=1), nn.MaxPool2D(2, 2))]
    return stacked(*features, nn.Flatten(), dense(512), dense(512), nn.Dense(10))


def alexnet():
    return stacked(
        conv(96, 11, strides=4),
        Norm(96),
        nn.MaxPool2D(3, 2),
        conv(256, 5, padding=2, groups=2),
        Norm(256),
        nn.MaxPool2D(3, 2),
        conv(384, 3, padding=1),
        conv(384, 3, padding=1, groups=2),
        conv(256, 3, padding=1, groups=2),
        nn.MaxPool2D(3, 2),
        nn.Flatten(),
        dense(4096),
        nn.Dropout(0.5),
        dense(4096),
        nn.Dropout(0.5),
        nn.Dense(1000),
    )


class Inception(gluon.HybridBlock):
    def __init__(self, one, reduce3, three, reduce5, five, project):
        super().__init__()
        self.branch1 = conv(one, 1)
        self.branch2 = stacked(conv(reduce3, 1), conv(three, 3, padding=1))
        self.branch3 = stacked(conv(reduce5, 1), conv(five, 5, padding=2))
        self.branch4 = stacked(nn.MaxPool2D(3, 1, 1, ceil_mode=True), conv(project, 1))

    def hybrid_forward(self, F, x):  # noqa: N803
        return F.concat(self.branch1(x), self.branch2(x), self.branch3(x), self.branch4(x), dim=1)


def auxiliary():
    return stacked(nn.AvgPool2D(5, 3), conv(128, 1), nn.Flatten(), dense(1024), nn.Dropout(0.7), nn.Dense(1000))


class GoogLeNet(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        pool = {"pool_size": 3, "strides": 2, "ceil_mode": True}
        self.first = stacked(
            conv(64, 7, strides=2, padding=3),
            nn.MaxPool2D(**pool),
            Norm(64),
            conv(64, 1),
            conv(192, 3, padding=1),
            Norm(192),
            nn.MaxPool2D(**pool),
            Inception(64, 96, 128, 16, 32, 32),
            Inception(128, 128, 192, 32, 96, 64),
            nn.MaxPool2D(**pool),
            Inception(192, 96, 208, 16, 48, 64),
        )
        self.loss1 = auxiliary()
        self.second = stacked(
            Inception(160, 112, 224, 24, 64, 64),
            Inception(128, 128, 256, 24, 64, 64),
            Inception(112, 144, 288, 32, 64, 64),
        )
        self.loss2 = auxiliary()
        self.third = stacked(
            Inception(256, 160, 320, 32, 128, 128),
            nn.MaxPool2D(**pool),
            Inception(256, 160, 320, 32, 128, 128),
            Inception(384, 192, 384, 48, 128, 128),
            nn.AvgPool2D(7, 1),
            nn.Flatten(),
            nn.Dropout(0.4),
            nn.Dense(1000),
        )

    def hybrid_forward(self, F, x):  # noqa: N803
        x = self.first(x)
        first = self.loss1(x)
        x = self.second(x)
        return first, self.loss2(x), self.third(x)


class Bottleneck(gluon.HybridBlock):
    def __init__(self, width, stride, project):
        super().__init__()
        self.body = stacked(
            nn.Conv2D(width, 1, use_bias=False),
            nn.BatchNorm(),
            nn.Activation("relu"),
            nn.Conv2D(width, 3, stride, 1, use_bias=False),
            nn.BatchNorm(),
            nn.Activation("relu"),
            nn.Conv2D(4 * width, 1, use_bias=False),
            nn.BatchNorm(),
        )
        self.project = None
        if project:
            self.project = stacked(nn.Conv2D(4 * width, 1, stride, use_bias=False), nn.BatchNorm())

    def hybrid_forward(self, F, x):  # noqa: N803
        return F.Activation(self.body(x) + (x if self.project is None else self.project(x)), act_type="relu")


def resnet50():
    layers = [nn.Conv2D(64, 7, 2, 3, use_bias=False), nn.BatchNorm(), nn.Activation("relu"), nn.MaxPool2D(3, 2, 1)]
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        layers += [Bottleneck(width, stride if index == 0 else 1, index == 0) for index in range(count)]
    return stacked(*layers, nn.AvgPool2D(7, 1), nn.Flatten(), nn.Dense(1000))


NETWORKS = {
    "alexnet": alexnet,
    "googlenet": GoogLeNet,
    "mnist_large": mnist_large,
    "mnist_small": mnist_small,
    "resnet50": resnet50,
}


def plain(name, weights, images):
    """The hand-written network with these weights, in the graph's order; hybridised."""
    network = NETWORKS[name]()
    network.initialize()
    network(images)  # layers learn their input's size from it
    parameters = trainable(network)
    assert len(parameters) == len(weights), (len(parameters), len(weights))
    for parameter, values in zip(parameters, weights, strict=True):
        assert parameter.shape == values.shape, (parameter.name, parameter.shape, values.shape)
        parameter.set_data(mx.nd.array(values))
    network.hybridize(static_alloc=True, static_shape=True)
    return network


def trainable(network):
    return [parameter for parameter in network.collect_params().values() if parameter.grad_req != "null"]


class Criterion(gluon.HybridBlock):
    """Cross-entropy, a number a sample; GoogLeNet's auxiliary heads count 0.3."""

    def __init__(self):
        super().__init__()
        self.one = gluon.loss.SoftmaxCrossEntropyLoss()

    def hybrid_forward(self, F, labels, *heads):  # noqa: N803
        *others, last = [self.one(logits, labels) for logits in heads]
        return 0.3 * sum(others[1:], others[0]) + last if others else last
