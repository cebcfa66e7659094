"""A transformer in MXNet 1.9: a hybridised Gluon block with static memory, its fused update operators.

What was tried, in CPU seconds of a step: interleaved products of attention are 1.06 to 1.07 times as fast as batch_dot
(they want tokens before samples, and the rows of qkv by head); imperative 1.17 to 1.24 times slower;
multi_adamw_update, which takes 50 tensors at most: no difference.

Inference: the hybridised block with oneDNN's subgraphs ("plain": without).
"""

import math

import mxnet as mx
import numpy as np


def by_head(value, heads):
    """The rows of qkv, canonically (3, heads, d), as (heads, 3, d)."""
    return value.reshape((3, heads, -1, *value.shape[1:])).swapaxes(0, 1).reshape(value.shape)


class Network(mx.gluon.HybridBlock):
    def __init__(self, form, initial, samples):
        super().__init__(prefix="")
        self.form, self.samples, self.shapes = form, samples, {n: v.shape for n, v in initial.items()}
        for name, value in initial.items():
            safe = name.replace(".", "_")
            setattr(self, safe, self.params.get(safe, shape=value.shape))
        if form and not form.image:
            mask = np.triu(np.full((1, form.tokens, form.tokens), -np.inf), 1)
            self.mask = self.params.get_constant("mask", mx.nd.array(mask))

    def hybrid_forward(self, F, x, y, **w):  # noqa: N803 - Gluon's names
        logits = self.logits(F, x, w)
        y = y if self.form.image else F.transpose(y)
        return F.mean(-F.pick(F.log_softmax(logits, axis=-1), y, axis=-1))

    def logits(self, F, x, w):  # noqa: N803
        """Of tokens by position, then sample."""
        form = self.form

        def dense(h, name):
            units = self.shapes[name + ".weight"][0]
            return F.FullyConnected(h, w[name + "_weight"], w[name + "_bias"], num_hidden=units, flatten=False)

        def norm(h, name):
            return F.LayerNorm(h, w[name + "_weight"], w[name + "_bias"], axis=-1, eps=form.eps)

        def attention(qkv):
            scores = F.contrib.interleaved_matmul_selfatt_qk(qkv, heads=form.heads)
            scores = scores if form.image else F.broadcast_add(scores, w["mask"])
            return F.contrib.interleaved_matmul_selfatt_valatt(qkv, F.softmax(scores, axis=-1), heads=form.heads)

        if form.image:
            size = form.patch
            kernel = F.reshape(w["patches_weight"], shape=(form.width, 3, size, size))
            window = {"kernel": (size, size), "stride": (size, size), "num_filter": form.width}
            h = F.Convolution(x, kernel, w["patches_bias"], **window)
            h = F.transpose(F.reshape(h, shape=(0, 0, -3)), axes=(2, 0, 1))  # tokens first
            token = F.broadcast_axis(w["class_token_weight"], axis=1, size=self.samples)
            h = F.concat(token, h, dim=0)
        else:
            h = F.Embedding(F.transpose(x), w["embedding_weight"], input_dim=form.classes, output_dim=form.width)
        h = F.broadcast_add(h, F.swapaxes(w["positions_weight"], dim1=0, dim2=1))
        for number in range(1, form.blocks + 1):
            name = f"block{number}"
            h = h + dense(attention(dense(norm(h, name + "_norm1"), name + "_qkv")), name + "_out")
            z = dense(norm(h, name + "_norm2"), name + "_fc1")
            z = 0.5 * z * (1 + F.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z * z * z)))
            h = h + dense(z, name + "_fc2")
        h = norm(h, "norm")
        if form.image:
            return dense(F.reshape(F.slice_axis(h, axis=0, begin=0, end=1), shape=(-3, 0)), "fc")
        options = {"num_hidden": form.classes, "no_bias": True, "flatten": False}
        return F.FullyConnected(h, w["embedding_weight"], **options)


class Loop:
    def __init__(self, form, initial, batch, rule):
        self.form, self.rule, self.done = form, rule, 0
        turned = {n: by_head(v, form.heads) if "_qkv" in n else v for n, v in initial.items()}
        self.network = Network(form, turned, len(batch.labels))
        self.network.initialize()
        self.p = {name: self.network.params[name.replace(".", "_")] for name in turned}
        for name, value in turned.items():
            self.p[name].set_data(mx.nd.array(value))
        self.network.hybridize(static_alloc=True, static_shape=True)
        self.x = mx.nd.array(batch.inputs, dtype="float32" if form.image else "int32")
        self.y = mx.nd.array(batch.labels, dtype="int32")
        self.first, self.second = ({n: mx.nd.zeros_like(p.data()) for n, p in self.p.items()} for _ in range(2))
        self.one = mx.nd.ones(1)

    def step(self):
        with mx.autograd.record():
            loss = self.network(self.x, self.y)
        loss.backward()
        self.done += 1
        for name, p in self.p.items():
            decay = self.rule.weight_decay if sum(extent > 1 for extent in p.shape) > 1 else 0.0
            (self.sgd if self.form.image else self.adamw)(name, p.data(), p.grad(), decay)
        mx.nd.waitall()
        return float(loss.asscalar())

    def sgd(self, name, w, gradient, decay):
        options = {"lr": self.rule.lr, "momentum": self.rule.momentum, "wd": decay, "lazy_update": False}
        mx.nd.sgd_mom_update(w, gradient, self.first[name], out=w, **options)

    def adamw(self, name, w, gradient, decay):
        """The operator neither corrects the moments nor multiplies the decay by the rate."""
        rule = self.rule
        options = {"beta1": rule.beta1, "beta2": rule.beta2, "epsilon": rule.epsilon, "eta": 1.0}
        state = self.first[name], self.second[name], self.one
        mx.nd.contrib.adamw_update(w, gradient, *state, out=w, lr=rule.rate(self.done), wd=rule.lr * decay, **options)


class Answers:
    def __init__(self, network, form, tensors, inputs, way="gluon"):
        if form:
            tensors = {n: by_head(v, form.heads) if "_qkv" in n else v for n, v in tensors.items()}
        self.block = Forward(network, form, tensors, len(inputs))
        self.block.initialize()
        for name, value in tensors.items():
            self.block.params[name.replace(".", "_")].set_data(mx.nd.array(value))
        self.dtype = str(inputs.dtype) if inputs.dtype == np.float32 else "int32"
        self.block.hybridize(static_alloc=True, static_shape=True, backend=None if way == "plain" else "MKLDNN")

    def answer(self, inputs):
        return self.block(mx.nd.array(inputs, dtype=self.dtype)).asnumpy()


class Forward(Network):
    def __init__(self, network, form, tensors, samples):
        super().__init__(form, tensors, samples)
        self.network = network

    def hybrid_forward(self, F, x, y=None, **w):  # noqa: N803
        self.F, self.w = F, w
        return self.network(self, x)

    def transformer(self, x):
        found = self.logits(self.F, x, self.w)
        return found if self.form.image else self.F.swapaxes(found, dim1=0, dim2=1)

    def conv(self, x, name, stride=1, pad=0, relu=True, plus=None):
        out, _, kernel, _ = self.shapes[name + ".weight"]
        window = {"kernel": (kernel, kernel), "stride": (stride, stride), "pad": (pad, pad), "num_filter": out}
        y = self.F.Convolution(x, self.w[name + "_weight"], self.w[name + "_bias"], **window)
        y = y if plus is None else y + plus
        return self.F.Activation(y, act_type="relu") if relu else y

    def max_pool(self, x, kernel, stride, pad=0, ceil=False):
        window = {"kernel": (kernel, kernel), "stride": (stride, stride), "pad": (pad, pad)}
        return self.F.Pooling(x, pool_type="max", pooling_convention="full" if ceil else "valid", **window)

    def lrn(self, x):
        return self.F.LRN(x, nsize=5, alpha=1e-4, beta=0.75, knorm=1.0)

    def concat(self, xs):
        return self.F.concat(*xs, dim=1)

    def flat(self, x):
        return self.F.Flatten(x)

    def mean(self, x):
        return self.F.Flatten(self.F.Pooling(x, kernel=(7, 7), pool_type="avg", global_pool=True))

    def dense(self, x, name, relu=False):
        weight = self.w[name + "_weight"], self.w[name + "_bias"]
        y = self.F.FullyConnected(x, *weight, num_hidden=self.shapes[name + ".weight"][0])
        return self.F.Activation(y, act_type="relu") if relu else y
