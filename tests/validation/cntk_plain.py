"""The five networks as CNTK's users write them by hand: what the adapter's speed is held against.

Written once on a kit of layers: `Usual` is cntk.layers, as CNTK's own examples use them;
`Tricks` is what an expert writes with plain operations. Both take the weights, and the seeds of
dropout, in the order in which the workload's graph has its layers.
"""

import numpy as np

from stagebench.adapters.cntk.machine import cntk as C  # noqa: N812 - the usual name

BAND = (np.abs(np.subtract.outer(np.arange(512), np.arange(512))) <= 2).astype(np.float32) * np.float32(1e-4 / 5)


class Usual:
    """cntk.layers."""

    def __init__(self, values, seeds):
        self.values, self.seeds = list(values), list(seeds)

    def take(self, *parameters):
        for parameter in parameters:
            parameter.value = np.ascontiguousarray(self.values.pop(0).reshape(parameter.shape))

    def parameter(self, *shape):
        values = self.values.pop(0)
        return C.parameter(init=np.ascontiguousarray(values.reshape(shape or values.shape)))

    def conv(self, x, out, kernel, stride=1, pad=0, groups=1, bias=True):
        if groups > 1:  # cntk.layers sends its users to the operation
            around = [False, bool(pad), bool(pad)]
            y = C.convolution(self.parameter(), x, strides=(stride, stride), auto_padding=around, groups=groups)
            return y + self.parameter(out, 1, 1)
        layer = C.layers.Convolution2D((kernel, kernel), out, strides=stride, pad=bool(pad), bias=bias, activation=None)
        y = layer(x)
        self.take(*([layer.W, layer.b] if bias else [layer.W]))
        return y

    def dense(self, x, out):
        layer = C.layers.Dense(out, activation=None)
        y = layer(x)
        layer.W.value = np.ascontiguousarray(self.values.pop(0).T)
        self.take(layer.b)
        return y

    def bn(self, x, samples):
        layer = C.layers.BatchNormalization(
            map_rank=1, normalization_time_constant=-samples / np.log(0.9), epsilon=1e-5, use_cntk_engine=True
        )
        y = layer(x)
        self.take(layer.scale, layer.bias)
        return y

    def relu(self, x):
        return C.relu(x)

    def max_pool(self, x, kernel, stride, pad=0, ceil=False):
        window = (kernel, kernel), (stride, stride), [False, bool(pad), bool(pad)]
        return C.pooling(x, C.MAX_POOLING, *window, ceil_out_dim=ceil)

    def avg_pool(self, x, kernel, stride):
        return C.layers.AveragePooling((kernel, kernel), strides=stride)(x)

    def lrn(self, x):
        return C.local_response_normalization(x, 2, 1.0, 1e-4, 0.75)

    def dropout(self, x, rate):
        return C.layers.Dropout(rate, seed=self.seeds.pop(0))(x)


class Tricks(Usual):
    """Plain operations, each the fastest that there is."""

    def conv(self, x, out, kernel, stride=1, pad=0, groups=1, bias=True):
        if kernel == 1:
            if stride > 1:
                x = C.slice(x, [1, 2], [0, 0], list(x.shape[1:]), [stride, stride])
            y = C.times(self.parameter(out, x.shape[0]), x, output_rank=2)
        else:
            around = [False, bool(pad), bool(pad)]
            y = C.convolution(self.parameter(), x, strides=(stride, stride), auto_padding=around, groups=groups)
        return y + self.parameter(out, 1, 1) if bias else y

    def dense(self, x, out):
        weight = C.parameter(init=np.ascontiguousarray(self.values.pop(0).T))
        return C.times(x, weight) + self.parameter(out)

    def relu(self, x):
        return x * C.greater(x, 0)

    def avg_pool(self, x, kernel, stride):
        return C.reduce_mean(x, axis=(1, 2)) if kernel == x.shape[1] else super().avg_pool(x, kernel, stride)

    def lrn(self, x):
        scale = C.times(C.constant(BAND[: x.shape[0], : x.shape[0]]), x * x, output_rank=2) + 1
        return x / C.sqrt(scale * C.sqrt(scale))


def mnist_small(k, x, samples):
    x = k.max_pool(k.relu(k.conv(x, 32, 3, pad=1)), 2, 2)
    return [(k.dense(k.relu(k.dense(C.reshape(x, (-1,)), 64)), 10), 1.0)]


def mnist_large(k, x, samples):
    for width in (128, 256, 512):
        x = k.max_pool(k.relu(k.conv(x, width, 3, pad=1)), 2, 2)
    x = k.relu(k.dense(C.reshape(x, (-1,)), 512))
    return [(k.dense(k.relu(k.dense(x, 512)), 10), 1.0)]


def alexnet(k, x, samples):
    x = k.max_pool(k.lrn(k.relu(k.conv(x, 96, 11, stride=4))), 3, 2)
    x = k.max_pool(k.lrn(k.relu(k.conv(x, 256, 5, pad=2, groups=2))), 3, 2)
    x = k.relu(k.conv(x, 384, 3, pad=1))
    x = k.relu(k.conv(x, 384, 3, pad=1, groups=2))
    x = k.max_pool(k.relu(k.conv(x, 256, 3, pad=1, groups=2)), 3, 2)
    x = C.reshape(x, (-1,))
    for _ in range(2):
        x = k.dropout(k.relu(k.dense(x, 4096)), 0.5)
    return [(k.dense(x, 1000), 1.0)]


def inception(k, x, one, reduce3, three, reduce5, five, project):
    branch1 = k.relu(k.conv(x, one, 1))
    branch2 = k.relu(k.conv(k.relu(k.conv(x, reduce3, 1)), three, 3, pad=1))
    branch3 = k.relu(k.conv(k.relu(k.conv(x, reduce5, 1)), five, 5, pad=2))
    branch4 = k.relu(k.conv(k.max_pool(x, 3, 1, pad=1, ceil=True), project, 1))
    return C.splice(branch1, branch2, branch3, branch4, axis=0)


def auxiliary(k, x):
    x = C.reshape(k.relu(k.conv(k.avg_pool(x, 5, 3), 128, 1)), (-1,))
    return k.dense(k.dropout(k.relu(k.dense(x, 1024)), 0.7), 1000), 0.3


def googlenet(k, x, samples):
    x = k.lrn(k.max_pool(k.relu(k.conv(x, 64, 7, stride=2, pad=3)), 3, 2, ceil=True))
    x = k.relu(k.conv(k.relu(k.conv(x, 64, 1)), 192, 3, pad=1))
    x = k.max_pool(k.lrn(x), 3, 2, ceil=True)
    x = inception(k, x, 64, 96, 128, 16, 32, 32)
    x = k.max_pool(inception(k, x, 128, 128, 192, 32, 96, 64), 3, 2, ceil=True)
    x = inception(k, x, 192, 96, 208, 16, 48, 64)
    heads = [auxiliary(k, x)]
    for widths in ((160, 112, 224, 24, 64, 64), (128, 128, 256, 24, 64, 64), (112, 144, 288, 32, 64, 64)):
        x = inception(k, x, *widths)
    heads.append(auxiliary(k, x))
    x = k.max_pool(inception(k, x, 256, 160, 320, 32, 128, 128), 3, 2, ceil=True)
    x = inception(k, inception(k, x, 256, 160, 320, 32, 128, 128), 384, 192, 384, 48, 128, 128)
    x = k.dropout(C.reshape(k.avg_pool(x, 7, 1), (-1,)), 0.4)
    return [*heads, (k.dense(x, 1000), 1.0)]


def bottleneck(k, x, width, stride, project, samples):
    y = k.relu(k.bn(k.conv(x, width, 1, bias=False), samples))
    y = k.relu(k.bn(k.conv(y, width, 3, stride=stride, pad=1, bias=False), samples))
    y = k.bn(k.conv(y, 4 * width, 1, bias=False), samples)
    return k.relu(y + (k.bn(k.conv(x, 4 * width, 1, stride=stride, bias=False), samples) if project else x))


def resnet50(k, x, samples):
    x = k.max_pool(k.relu(k.bn(k.conv(x, 64, 7, stride=2, pad=3, bias=False), samples)), 3, 2, pad=1)
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(count):
            x = bottleneck(k, x, width, 1 if block else stride, block == 0, samples)
    return [(k.dense(C.reshape(k.avg_pool(x, 7, 1), (-1,)), 1000), 1.0)]


NETWORKS = {each.__name__: each for each in (mnist_small, mnist_large, alexnet, googlenet, resnet50)}


def trainer(name, kit, shape, classes, samples, optimiser):
    """(images, labels, cntk.Trainer) of a network written on a kit."""
    images, labels = C.input_variable(shape), C.input_variable(classes)
    heads = NETWORKS[name](kit, images, samples)
    losses = [C.cross_entropy_with_softmax(logits, labels) * weight for logits, weight in heads]
    if not all(loss.shape == losses[0].shape for loss in losses) or kit.values:
        raise ValueError("%s: %d weights are left over" % (name, len(kit.values)))
    lr, momentum, decay = optimiser[:3]
    learner = C.momentum_sgd(
        sum(losses[1:], losses[0]).parameters,
        C.learning_parameter_schedule(lr, minibatch_size=samples),
        C.momentum_schedule(momentum, minibatch_size=samples),
        unit_gain=False,
        l2_regularization_weight=decay,
    )
    return images, labels, C.Trainer(heads[-1][0], (sum(losses[1:], losses[0]), None), [learner])
