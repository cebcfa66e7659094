"""A transformer in CNTK 2.7 by its operations; the batch is CNTK's dynamic axis.

What was tried, in CPU seconds of a step: attention by a loop over heads is 1.2 times as fast as the batched product
made for ONNX; tokens by numbers or one-hot rows: no difference. SGD by two learners of CNTK's own, for what is decayed
and what is not, is 1.05 times as fast as an update by operations.

Inference: parameters are constants ("parameters": they are not), and the library's own call evaluates the function:
`eval` checks its arguments for as long as a fifth of a query of mnist_small.

Oldest Python: 3.6.
"""

import math

import numpy as np

from stagebench.adapters.cntk.machine import cntk as C  # noqa: N812 - the usual name

NOT_TURNED = ("embedding", "positions", "class_token")


class Loop:
    def __init__(self, form, initial, batch, rule):
        self.form, self.rule, self.done = form, rule, 0
        self.w = {name: C.Parameter(init=self.turned(name, value), dtype=np.float32) for name, value in initial.items()}
        one_hot = np.eye(form.classes, dtype=np.float32)[batch.labels]
        x, y = (C.input_variable(each.shape[1:], dtype=np.float32) for each in (batch.inputs, one_hot))
        logits = self.logits(x)
        entropy = C.reduce_log_sum_exp(logits, axis=-1) - C.reduce_sum(logits * y, axis=-1)
        loss = C.reshape(entropy, ()) if form.image else C.reduce_mean(entropy)
        samples = len(batch.labels)
        self.trainer = C.Trainer(None, (loss,), self.learners(samples) if form.image else [self.adamw(samples)])
        placed = (np.ascontiguousarray(each, np.float32) for each in (batch.inputs, one_hot))
        self.given = dict(zip((x, y), (C.Value(C.NDArrayView.from_data(each)) for each in placed)))

    @staticmethod
    def turned(name, value):
        value = value.reshape(value.shape[1:]) if value.ndim == 3 else value
        return np.ascontiguousarray(value.T) if value.ndim == 2 and name.split(".")[0] not in NOT_TURNED else value

    def dense(self, x, name):
        return C.times(x, self.w[name + ".weight"]) + self.w[name + ".bias"]

    def norm(self, x, name):
        centred = x - C.reduce_mean(x, axis=-1)
        deviation = C.sqrt(C.reduce_mean(centred * centred, axis=-1) + np.float32(self.form.eps))
        return centred / deviation * self.w[name + ".weight"] + self.w[name + ".bias"]

    def attention(self, qkv):
        form, found = self.form, []
        d = form.width // form.heads
        mask = C.constant(np.triu(np.full((form.tokens, form.tokens), -1e30, np.float32), 1))
        for head in range(form.heads):
            begins = [third * form.width + head * d for third in range(3)]
            q, k, v = (C.slice(qkv, 1, begin, begin + d) for begin in begins)
            scores = C.times(q * np.float32(1 / math.sqrt(d)), C.swapaxes(k, 0, 1))
            found.append(C.times(C.softmax(scores if form.image else scores + mask, axis=-1), v))
        return C.splice(*found, axis=-1)

    def logits(self, x):
        w, form = self.w, self.form
        if form.image:
            size = form.patch
            side = x.shape[1] // size
            # By two transpositions: one of six axes, with the batch's, is more than CNTK takes.
            h = C.transpose(C.reshape(x, (3, side, size * side * size)), (1, 0, 2))
            h = C.transpose(C.reshape(h, (side, 3 * size, side, size)), (0, 2, 1, 3))
            h = self.dense(C.reshape(h, (side * side, 3 * size * size)), "patches")
            h = C.splice(w["class_token.weight"], h, axis=0)
        else:
            h = C.gather(w["embedding.weight"], x)
        h = h + w["positions.weight"]
        for number in range(1, form.blocks + 1):
            name = "block%d" % number
            h = h + self.dense(self.attention(self.dense(self.norm(h, name + "_norm1"), name + "_qkv")), name + "_out")
            z = self.dense(self.norm(h, name + "_norm2"), name + "_fc1")
            inner = np.float32(math.sqrt(2 / math.pi)) * (z + np.float32(0.044715) * z * z * z)
            h = h + self.dense(np.float32(0.5) * z * (np.float32(1) + C.tanh(inner)), name + "_fc2")
        h = self.norm(h, "norm")
        if form.image:
            return self.dense(C.reshape(C.slice(h, 0, 0, 1), (form.width,)), "fc")
        return C.times(h, C.swapaxes(w["embedding.weight"], 0, 1))

    def decay(self, weight):
        return self.rule.weight_decay if sum(extent > 1 for extent in weight.shape) > 1 else 0.0

    def learners(self, samples):
        rule, found = self.rule, []
        for decay in (rule.weight_decay, 0.0):
            weights = [w for w in self.w.values() if self.decay(w) == decay]
            rates = C.learning_parameter_schedule(rule.lr, minibatch_size=samples)
            kept = C.momentum_schedule(rule.momentum, minibatch_size=samples)
            found.append(C.momentum_sgd(weights, rates, kept, unit_gain=False, l2_regularization_weight=decay))
        return found

    def adamw(self, samples):
        rule = self.rule
        self.rate = C.Parameter((1,), init=0, dtype=np.float32)  # of this update, moments' correction included

        def update(weights, gradients):
            moved = []
            for w, g in zip(weights, gradients):
                m, v = (C.constant(0, shape=w.shape, dtype=np.float32) for _ in range(2))
                g = g * (1.0 / samples)
                first = C.assign(m, rule.beta1 * m + (1 - rule.beta1) * g)
                second = C.assign(v, rule.beta2 * v + (1 - rule.beta2) * g * g)
                kept = (1 - rule.lr * self.decay(w)) * w
                moved.append(C.assign(w, kept - self.rate * first / (C.sqrt(second) + rule.epsilon)))
            return C.combine(moved)

        return C.universal(update, list(self.w.values()))

    def step(self):
        self.done += 1
        if not self.form.image:
            self.rate.value = np.array([self.rule.rate(self.done)], np.float32)
        self.trainer.train_minibatch(self.given)
        return float(self.trainer.previous_minibatch_loss_average)


class Answers(Loop):
    def __init__(self, network, form, tensors, inputs, way="constants"):
        self.form, self.way = form, way
        kind = C.Parameter if way == "parameters" else C.Constant
        self.w = {
            name: kind(np.ascontiguousarray(self.laid(name, value)), dtype=np.float32)
            if way != "parameters"
            else C.Parameter(init=np.ascontiguousarray(self.laid(name, value)), dtype=np.float32)
            for name, value in tensors.items()
        }
        self.x = C.input_variable(inputs.shape[1:], dtype=np.float32)
        self.function = network(self, self.x)

    def laid(self, name, value):
        if value.ndim == 4:
            return value[:, :, 0, 0] if value.shape[2] == 1 else value
        if value.ndim == 1 and self.form is None and not name.startswith(("fc", "loss")):
            return value[:, None, None]  # a convolution's bias
        return self.turned(name, value)

    def answer(self, inputs):
        given = C.Value(C.NDArrayView.from_data(np.ascontiguousarray(inputs, np.float32)))
        found = {self.function.output: None}
        C.cntk_py.Function._forward(self.function, {self.x: given}, found, C.cpu(), set())
        return np.array(found[self.function.output].asarray())

    def transformer(self, x):
        return self.logits(x)

    def conv(self, x, name, stride=1, pad=0, relu=True, plus=None):
        w = self.w[name + ".weight"]
        if len(w.shape) == 2:
            x = x if stride == 1 else C.slice(x, [1, 2], [0, 0], list(x.shape[1:]), [stride, stride])
            y = C.times(w, x, output_rank=2)
        else:
            around = [False, bool(pad), bool(pad)]
            y = C.convolution(w, x, strides=(stride, stride), auto_padding=around)
        y = y + self.w[name + ".bias"]
        y = y if plus is None else y + plus
        return self.relu(y) if relu else y

    def relu(self, x):
        return x * C.greater(x, np.float32(0))

    def max_pool(self, x, kernel, stride, pad=0, ceil=False):
        window = (kernel, kernel), (stride, stride), [False, bool(pad), bool(pad)]
        return C.pooling(x, C.MAX_POOLING, *window, ceil_out_dim=ceil)

    def lrn(self, x):
        apart = np.abs(np.subtract.outer(np.arange(x.shape[0]), np.arange(x.shape[0])))
        band = ((apart <= 2) * (1e-4 / 5)).astype(np.float32)
        scale = C.times(C.constant(band), x * x, output_rank=2) + np.float32(1)
        return x / C.sqrt(scale * C.sqrt(scale))

    def concat(self, xs):
        return C.splice(*xs, axis=0)

    def flat(self, x):
        return C.reshape(x, (-1,))

    def mean(self, x):
        return C.reshape(C.reduce_mean(x, axis=(1, 2)), (-1,))

    def dense(self, x, name, relu=False):
        y = super().dense(x, name)
        return self.relu(y) if relu else y
