"""A transformer in TensorFlow: tf.nn and tf.matmul in one tf.function that XLA compiles.

What was tried, in CPU seconds of a step: XLA is 1.13 to 1.14 times as fast as the graph; Keras' attention and its norm,
patches by a product in place of a convolution: no difference.

Inference: the trace of one shape, called itself; filters are its constants ("frozen": all parameters are). Transformers
are compiled by XLA. The polymorphic tf.function takes mnist_small with one sample a quarter longer.
"""

import math

import numpy as np
import tensorflow as tf

TABLES = ("embedding.weight", "positions.weight", "class_token.weight")


class Loop:
    def __init__(self, form, initial, batch, rule):
        self.form, self.rule = form, rule
        self.w = {n: tf.Variable(v.T if v.ndim > 1 and n not in TABLES else v) for n, v in initial.items()}
        self.first, self.second = ({n: tf.Variable(tf.zeros_like(w)) for n, w in self.w.items()} for _ in range(2))
        self.count = tf.Variable(0, dtype=tf.int64)
        x = batch.inputs
        self.x = tf.constant(x.transpose(0, 2, 3, 1)) if form.image else tf.constant(x, tf.int32)
        self.y = tf.constant(batch.labels, tf.int32)
        self.mask = np.triu(np.full((form.tokens, form.tokens), -np.inf, np.float32), 1)
        self.compiled = tf.function(self.train, jit_compile=True, autograph=False)

    def dense(self, x, name):
        w = tf.convert_to_tensor(self.w[name + ".weight"])
        y = tf.nn.bias_add(tf.matmul(tf.reshape(x, [-1, w.shape[0]]), w), self.w[name + ".bias"])
        return tf.reshape(y, [*x.shape[:-1], w.shape[1]])

    def norm(self, x, name):
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        read = self.w[name + ".bias"], self.w[name + ".weight"], self.form.eps
        return tf.nn.batch_normalization(x, mean, variance, *read)

    def attention(self, qkv):
        n, t, width = qkv.shape
        d = width // 3 // self.form.heads
        q, k, v = tf.unstack(tf.transpose(tf.reshape(qkv, [n, t, 3, self.form.heads, d]), [2, 0, 3, 1, 4]))
        scores = tf.matmul(q * (1.0 / math.sqrt(d)), k, transpose_b=True)
        scores = scores if self.form.image else scores + self.mask
        return tf.reshape(tf.transpose(tf.matmul(tf.nn.softmax(scores), v), [0, 2, 1, 3]), [n, t, width // 3])

    def logits(self):
        w, form = self.w, self.form
        if form.image:
            n, size = self.x.shape[0], form.patch
            filters = tf.transpose(tf.reshape(w["patches.weight"], [3, size, size, form.width]), [1, 2, 0, 3])
            h = tf.nn.conv2d(self.x, filters, size, "VALID") + w["patches.bias"]
            h = tf.reshape(h, [n, form.tokens - 1, form.width])
            h = tf.concat([tf.tile(w["class_token.weight"], [n, 1, 1]), h], 1)
        else:
            h = tf.gather(w["embedding.weight"], self.x)
        h = h + w["positions.weight"]
        for number in range(1, form.blocks + 1):
            name = f"block{number}"
            h = h + self.dense(self.attention(self.dense(self.norm(h, name + "_norm1"), name + "_qkv")), name + "_out")
            z = self.dense(self.norm(h, name + "_norm2"), name + "_fc1")
            z = 0.5 * z * (1 + tf.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z * z * z)))
            h = h + self.dense(z, name + "_fc2")
        h = self.norm(h, "norm")
        if form.image:
            return self.dense(h[:, 0], "fc")
        return tf.matmul(tf.reshape(h, [-1, form.width]), w["embedding.weight"], transpose_b=True)

    def train(self):
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.reshape(self.y, [-1]), self.logits())
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, self.w)
        done = tf.cast(self.count.assign_add(1), tf.float64)
        for name, w in self.w.items():
            decay = self.rule.weight_decay if sum(extent > 1 for extent in w.shape) > 1 else 0.0
            gradient = tf.convert_to_tensor(gradients[name])
            move = self.sgd if self.form.image else self.adamw
            move(w, self.first[name], self.second[name], gradient, decay, done)
        return loss

    def sgd(self, w, velocity, _, gradient, decay, done):
        rule = self.rule
        w.assign_sub(rule.lr * velocity.assign(rule.momentum * velocity + gradient + decay * w))

    def adamw(self, w, first, second, gradient, decay, done):
        rule = self.rule
        left = [1 - tf.pow(tf.constant(beta, tf.float64), done) for beta in (rule.beta1, rule.beta2)]
        rate = tf.cast(rule.lr * tf.sqrt(left[1]) / left[0], tf.float32)
        m = first.assign_add((gradient - first) * (1 - rule.beta1))
        v = second.assign_add((gradient * gradient - second) * (1 - rule.beta2))
        w.assign(w * (1 - rule.lr * decay) - rate * m / (tf.sqrt(v) + rule.epsilon))

    def step(self):
        return float(self.compiled())


class Answers(Loop):
    def __init__(self, network, form, tensors, inputs, way=None):
        self.form, way = form, way or ("xla" if form else "graph")
        turned = {
            n: v if n in TABLES else v.transpose(*range(2, v.ndim), 1, 0) for n, v in tensors.items() if v.ndim > 1
        }
        # A filter is a constant of the graph.
        self.w = {n: turned.get(n, v) for n, v in tensors.items()}
        if way != "frozen":
            self.w = {n: v if v.ndim == 4 else tf.Variable(v) for n, v in self.w.items()}
        if form:
            self.mask = np.triu(np.full((form.tokens, form.tokens), -np.inf, np.float32), 1)
        shape = inputs.shape

        @tf.function(jit_compile=way == "xla", autograph=False)
        def answers(x):
            return network(self, tf.transpose(x, [0, 2, 3, 1]) if len(shape) == 4 else x)

        given = tf.TensorSpec(shape, tf.float32 if len(shape) == 4 else tf.int64)
        self.run = answers.get_concrete_function(given)

    def answer(self, inputs):
        return self.run(tf.constant(inputs)).numpy()

    def transformer(self, x):
        self.x = x
        found = self.logits()
        return found if self.form.image else tf.reshape(found, [*x.shape, -1])

    def conv(self, x, name, stride=1, pad=0, relu=True, plus=None):
        pads = [[0, 0], [pad, pad], [pad, pad], [0, 0]]
        y = tf.nn.bias_add(tf.nn.conv2d(x, self.w[name + ".weight"], stride, pads), self.w[name + ".bias"])
        y = y if plus is None else y + plus
        return tf.nn.relu(y) if relu else y

    def max_pool(self, x, kernel, stride, pad=0, ceil=False):
        same = ceil or (kernel == 3 and stride == 1)  # nothing that is padded is negative
        if pad and not same:
            x, pad = tf.pad(x, [[0, 0], [pad, pad], [pad, pad], [0, 0]]), 0
        return tf.nn.max_pool2d(x, kernel, stride, "SAME" if same else "VALID")

    def lrn(self, x):
        channels = x.shape[3]
        band = np.tri(channels, k=2) * np.tri(channels, k=2).T * (1e-4 / 5)
        scale = tf.nn.conv2d(x * x, band[None, None].astype(np.float32), 1, "VALID")
        root = tf.math.rsqrt(tf.nn.bias_add(scale, np.ones(channels, np.float32)))
        return x * (root * tf.sqrt(root))

    def concat(self, xs):
        return tf.concat(xs, 3)

    def flat(self, x):
        return tf.reshape(tf.transpose(x, [0, 3, 1, 2]), [x.shape[0], -1])

    def mean(self, x):
        return tf.reduce_mean(x, [1, 2])

    def dense(self, x, name, relu=False):
        y = super().dense(x, name)
        return tf.nn.relu(y) if relu else y
