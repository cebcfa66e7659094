"""The five networks as TensorFlow users write them: by hand on tf.nn, and as Keras layers.

By hand: every function takes its variables from an iterator, in the order in which the
workload's graph has its parameters.
"""

import keras
import numpy as np
import tensorflow as tf

from stagebench.adapters.tensorflow import kernels, lower
from stagebench.adapters.tensorflow.net import Layout

MOMENTUM_OF_STATISTICS = 0.9


def conv(v, x, stride=1, pad=None, bias=True):
    """`pad` None: "SAME" is the same."""
    if pad:
        x = tf.pad(x, [[0, 0], [pad, pad], [pad, pad], [0, 0]])
    y = tf.nn.conv2d(x, next(v), stride, "SAME" if pad is None else "VALID")
    return tf.nn.bias_add(y, next(v)) if bias else y


def conv_relu(v, x, stride=1, pad=None):
    return tf.nn.relu(conv(v, x, stride, pad))


def dense(v, x):
    return tf.matmul(x, next(v)) + next(v)


def flat(x):
    return tf.reshape(x, [x.shape[0], -1])


def pool(x, kernel=3, stride=2, word="SAME"):
    return tf.nn.max_pool2d(x, kernel, stride, word)


def dropped(x, rate):
    return tf.nn.dropout(x, rate) if rate else x


class Plain:
    """What the networks below need beside their variables."""

    def __init__(self, drops):
        self.drops = drops
        self.normalise = kernels.composed(5, 1e-4, 0.75, 1.0, 3, True)  # the adapter's: it must not hide an overhead
        self.statistics = []
        self._next = 0

    def begin(self):
        self._next = 0

    def batch_norm(self, v, x):
        scale, offset = next(v), next(v)
        if self._next == len(self.statistics):
            with tf.init_scope():
                self.statistics.append((tf.Variable(tf.zeros(x.shape[3])), tf.Variable(tf.ones(x.shape[3]))))
        mean_, variance_ = self.statistics[self._next]
        self._next += 1
        y, mean, variance, *_ = tf.raw_ops.FusedBatchNormV3(
            x=x,
            scale=scale,
            offset=offset,
            mean=mean_,
            variance=variance_,
            epsilon=1e-5,
            exponential_avg_factor=1 - MOMENTUM_OF_STATISTICS,
            is_training=True,
        )
        mean_.assign(mean)
        variance_.assign(variance)
        return y

    def mnist_small(self, v, x):
        x = pool(conv_relu(v, x), 2)
        return [dense(v, tf.nn.relu(dense(v, flat(x))))]

    def mnist_large(self, v, x):
        for _ in range(3):
            x = pool(conv_relu(v, x), 2, 2, "VALID")
        x = flat(x)
        for _ in range(2):
            x = tf.nn.relu(dense(v, x))
        return [dense(v, x)]

    def alexnet(self, v, x):
        x = pool(self.normalise(conv_relu(v, x, 4, 0)), word="VALID")
        x = pool(self.normalise(conv_relu(v, x)), word="VALID")
        for _ in range(3):
            x = conv_relu(v, x)
        x = flat(pool(x, word="VALID"))
        for _ in range(2):
            x = dropped(tf.nn.relu(dense(v, x)), 0.5 * self.drops)
        return [dense(v, x)]

    def googlenet(self, v, x):
        def inception(x):
            one = conv_relu(v, x)
            three = conv_relu(v, conv_relu(v, x))
            five = conv_relu(v, conv_relu(v, x))
            return tf.concat([one, three, five, conv_relu(v, pool(x, 3, 1))], 3)

        def auxiliary(x):
            x = flat(conv_relu(v, tf.nn.avg_pool2d(x, 5, 3, "VALID")))
            return dense(v, dropped(tf.nn.relu(dense(v, x)), 0.7 * self.drops))

        x = self.normalise(pool(conv_relu(v, x, 2, 3)))
        x = pool(self.normalise(conv_relu(v, conv_relu(v, x))))
        heads = []
        for name in ("3a", "3b", "4a", "4b", "4c", "4d", "4e", "5a", "5b"):
            x = inception(x)
            if name in ("4a", "4d"):
                heads.append(auxiliary(x))
            if name in ("3b", "4e"):
                x = pool(x)
        x = flat(tf.nn.avg_pool2d(x, 7, 1, "VALID"))
        return [*heads, dense(v, dropped(x, 0.4 * self.drops))]

    def resnet50(self, v, x):
        x = tf.nn.relu(self.batch_norm(v, conv(v, x, 2, 3, bias=False)))
        x = pool(tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]]), word="VALID")
        for stage, count in enumerate((3, 4, 6, 3)):
            for block in range(count):
                stride = 2 if stage and not block else 1
                y = tf.nn.relu(self.batch_norm(v, conv(v, x, bias=False)))
                y = tf.nn.relu(self.batch_norm(v, conv(v, y, stride, 1 if stride == 2 else None, bias=False)))
                y = self.batch_norm(v, conv(v, y, bias=False))
                x = tf.nn.relu(y + (x if block else self.batch_norm(v, conv(v, x, stride, bias=False))))
        return [dense(v, flat(tf.nn.avg_pool2d(x, 7, 1, "VALID")))]


def plain(name, graph, weights, optimiser, batch, drops):
    """(step, loss) of a hand-written fused tf.function; `drops`: what the rates of dropout are multiplied with."""
    layout = Layout(graph, "NHWC")
    variables = [tf.Variable(layout.native(key, value)) for key, value in weights.items()]
    velocities = [tf.Variable(tf.zeros_like(each)) for each in variables]
    network, shares = Plain(drops), [head.weight for head in graph.heads]
    images, labels = tf.constant(batch.inputs.transpose(0, 2, 3, 1)), tf.constant(batch.labels)
    lr, momentum, decay = optimiser[:3]

    @tf.function(jit_compile=True)
    def update(gradients):
        for weight, velocity, gradient in zip(variables, velocities, gradients, strict=True):
            velocity.assign(momentum * velocity + gradient + decay * weight)
            weight.assign_sub(lr * velocity)

    @tf.function
    def train(images, labels):
        network.begin()
        with tf.GradientTape() as tape:
            heads = getattr(network, name)(iter(variables), images)
            losses = [tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits) for logits in heads]
            loss = tf.add_n([share * tf.reduce_mean(each) for share, each in zip(shares, losses, strict=True)])
        update(tape.gradient(loss, variables))
        return loss

    last = []
    return lambda: last.__setitem__(slice(None), [train(images, labels)]), lambda: float(last[0])


def keras_layer(layer, drops):
    """What a Keras user writes for one layer; all that is padded here is not negative."""
    a, last = layer.attrs, keras.layers
    pads = lower.padding_needed(layer) if layer.kind in ("conv", "max_pool", "avg_pool") else ()
    same = bool(pads) and layer.kind != "avg_pool" and lower.same_padding(layer)
    window = {"strides": a.get("stride"), "padding": "same" if same else "valid"}
    made = {
        "conv": lambda: last.Conv2D(a["out"], a["kernel"], groups=a["groups"], use_bias=a["bias"], **window),
        "dense": lambda: last.Dense(a["out"], use_bias=a["bias"]),
        "relu": lambda: last.ReLU(),
        "max_pool": lambda: last.MaxPooling2D(a["kernel"], **window),
        "avg_pool": lambda: last.AveragePooling2D(a["kernel"], **window),
        "lrn": lambda: last.Lambda(
            lambda x: tf.nn.local_response_normalization(x, a["size"] // 2, a["k"], a["alpha"] / a["size"], a["beta"])
        ),
        "batch_norm": lambda: last.BatchNormalization(momentum=a["momentum"], epsilon=a["eps"]),
        "dropout": lambda: last.Dropout(a["rate"] * drops),
        "concat": last.Concatenate,
        "add": last.Add,
        "flatten": last.Flatten,
    }[layer.kind]()
    if any(sum(pads, ())) and not same:
        return lambda x: made(last.ZeroPadding2D(tuple(pads))(x)), made
    return made, made


def with_keras(graph, weights, optimiser, batch, drops, by_xla):
    """(step, loss, what resets the mean that the loss is) of Keras' compiled training: what `fit` calls every step."""
    layout = Layout(graph, "NHWC")
    inputs = keras.Input(batch.inputs.transpose(0, 2, 3, 1).shape[1:], len(batch.labels))
    values, made = {"input": inputs}, {}
    for layer in graph.layers:
        call, made[layer.name] = keras_layer(layer, drops)
        read = [values[name] for name in layer.inputs]
        values[layer.name] = call(read if len(read) > 1 else read[0])
    model = keras.Model(inputs, [values[head.layer] for head in graph.heads])
    for key, value in weights.items():
        layer, role = key.rsplit(".", 1)
        own = made[layer].trainable_variables
        own[0 if role == "weight" else 1].assign(np.ascontiguousarray(layout.native(key, value)))
    loss = [keras.losses.SparseCategoricalCrossentropy(from_logits=True) for _ in graph.heads]
    model.compile(
        keras.optimizers.SGD(optimiser.lr, momentum=optimiser.momentum),
        loss,
        loss_weights=[head.weight for head in graph.heads],
        jit_compile=by_xla,
    )
    targets = tuple(batch.labels for _ in graph.heads)
    data = tf.data.Dataset.from_tensors(
        (batch.inputs.transpose(0, 2, 3, 1), targets if len(targets) > 1 else targets[0])
    )
    batches = iter(data.repeat())
    model.make_train_function()
    last = []

    def step():
        last[:] = [model.train_function(batches)["loss"]]

    return step, lambda: float(last[0]), model.reset_metrics
