"""A transformer by aten's kernels without autograd: backwards are called by hand, gradients are written over.

What was tried, in CPU seconds of a step: products by oneDNN or by MKL, as in PyTorch's loop; the same by autograd: no
difference.

Inference is PyTorch's by hand.
"""

import math

import torch
from hand_written import pytorch
from pytorch_plain import onednn_is_faster

aten = torch.ops.aten


class Loop:
    def __init__(self, form, initial, batch, rule):
        self.form, self.rule, self.done, self.kept = form, rule, 0, []
        self.w = {name: torch.from_numpy(value.copy()) for name, value in initial.items()}
        self.g = {name: torch.zeros_like(value) for name, value in self.w.items()}
        self.x, self.y = torch.from_numpy(batch.inputs), torch.from_numpy(batch.labels).flatten()
        onednn = onednn_is_faster(len(self.x) * form.tokens, form.width, 4 * form.width)
        self.product = self.onednn if onednn else self.mkl
        matrices = [name for name, value in self.w.items() if sum(extent > 1 for extent in value.shape) > 1]
        others = [name for name in self.w if name not in matrices]
        self.groups = [
            (decay, *([each[name] for name in names] for each in (self.w, self.g)), *self.moments(names))
            for names, decay in ((matrices, rule.weight_decay), (others, 0.0))
        ]

    def moments(self, names):
        zeros = [[torch.zeros_like(self.w[name]) for name in names] for _ in range(2)]
        return *zeros, [torch.zeros(()) for _ in names]

    @staticmethod
    def onednn(x, w, b=None):
        return torch.ops.mkldnn._linear_pointwise(x, w, b, "none", [], "")

    @staticmethod
    def mkl(x, w, b=None):
        return torch.mm(x, w.t()) if b is None else torch.addmm(b, x, w.t())

    def dense(self, x, name):
        rows = x.reshape(-1, x.shape[-1])
        self.kept.append(rows)
        return self.product(rows, self.w[name + ".weight"], self.w[name + ".bias"]).view(*x.shape[:-1], -1)

    def dense_back(self, dy, name, further=True):
        rows, shape = self.kept.pop(), dy.shape[:-1]
        dy = dy.reshape(len(rows), -1)
        self.g[name + ".weight"].copy_(self.product(dy.t(), rows.t()))
        torch.sum(dy, 0, out=self.g[name + ".bias"])
        return self.product(dy, self.w[name + ".weight"].t()).view(*shape, -1) if further else None

    def norm(self, x, name):
        read = ([x.shape[-1]], self.w[name + ".weight"], self.w[name + ".bias"])
        y, mean, deviation = aten.native_layer_norm(x, *read, self.form.eps)
        self.kept.append((x, mean, deviation))
        return y

    def norm_back(self, dy, name):
        x, mean, deviation = self.kept.pop()
        weight, bias = name + ".weight", name + ".bias"
        read = ([x.shape[-1]], mean, deviation, self.w[weight], self.w[bias], [True] * 3)
        dx, dw, db = aten.native_layer_norm_backward(dy, x, *read)
        self.g[weight].copy_(dw)
        self.g[bias].copy_(db)
        return dx

    def attention(self, qkv):
        n, t, width = qkv.shape
        q, k, v = qkv.view(n, t, 3, self.form.heads, -1).permute(2, 0, 3, 1, 4)
        y, sums = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, not self.form.image)
        self.kept.append((q, k, v, y, sums))
        return y.transpose(1, 2).reshape(n, t, width // 3)

    def attention_back(self, dy):
        q, k, v, y, sums = self.kept.pop()
        n, heads, t, d = q.shape
        dy = dy.view(n, t, heads, d).transpose(1, 2)
        found = aten._scaled_dot_product_flash_attention_for_cpu_backward(
            dy, q, k, v, y, sums, 0.0, not self.form.image
        )
        return torch.stack([each.transpose(1, 2) for each in found], 2).view(n, t, 3 * heads * d)

    def forward(self):
        w, form = self.w, self.form
        if form.image:
            n, size = len(self.x), form.patch
            patches = self.x.unfold(2, size, size).unfold(3, size, size).permute(0, 2, 3, 1, 4, 5)
            h = self.dense(patches.reshape(n, form.tokens - 1, -1), "patches")
            h = torch.cat([w["class_token.weight"].expand(n, 1, -1), h], 1)
        else:
            h = aten.embedding(w["embedding.weight"], self.x)
        h = h + w["positions.weight"]
        for number in range(1, form.blocks + 1):
            name = f"block{number}"
            qkv = self.dense(self.norm(h, name + "_norm1"), name + "_qkv")
            h = h + self.dense(self.attention(qkv), name + "_out")
            z = self.dense(self.norm(h, name + "_norm2"), name + "_fc1")
            self.kept.append(z)
            h = h + self.dense(aten.gelu(z, approximate="tanh"), name + "_fc2")
        self.shape, h = h.shape, self.norm(h, "norm")
        if form.image:
            return self.dense(h[:, 0], "fc")
        rows = h.flatten(0, 1)
        self.kept.append(rows)
        return self.product(rows, w["embedding.weight"])

    def backward(self, dy):
        w, g, form = self.w, self.g, self.form
        if form.image:
            dh = torch.zeros(self.shape)
            dh[:, 0] = self.dense_back(dy, "fc")
        else:
            table = g["embedding.weight"].copy_(self.product(dy.t(), self.kept.pop().t()))
            dh = self.product(dy, w["embedding.weight"].t()).view(self.shape)
        dh = self.norm_back(dh, "norm")
        for number in range(form.blocks, 0, -1):
            name = f"block{number}"
            dz = self.dense_back(dh, name + "_fc2")
            dz = aten.gelu_backward(dz, self.kept.pop(), approximate="tanh")
            dh = dh + self.norm_back(self.dense_back(dz, name + "_fc1"), name + "_norm2")
            dz = self.attention_back(self.dense_back(dh, name + "_out"))
            dh = dh + self.norm_back(self.dense_back(dz, name + "_qkv"), name + "_norm1")
        torch.sum(dh, 0, keepdim=True, out=g["positions.weight"])
        if not form.image:
            table.add_(aten.embedding_dense_backward(dh, self.x, len(table), -1, False))
            return
        torch.sum(dh[:, :1], 0, keepdim=True, out=g["class_token.weight"])
        self.dense_back(dh[:, 1:], "patches", further=False)

    @torch.inference_mode()
    def step(self):
        logs = aten._log_softmax(self.forward(), -1, False)
        loss, count = aten.nll_loss_forward(logs, self.y, None, 1, -100)
        dlogs = aten.nll_loss_backward(torch.ones(()), logs, self.y, None, 1, -100, count)
        self.backward(aten._log_softmax_backward_data(dlogs, logs, -1, logs.dtype))
        self.done += 1
        for group in self.groups:
            (self.sgd if self.form.image else self.adamw)(*group)
        return float(loss)

    def sgd(self, decay, w, g, velocity, _, steps):
        options = {"dampening": 0.0, "nesterov": False, "maximize": False, "is_first_step": self.done == 1}
        rule = {"lr": self.rule.lr, "momentum": self.rule.momentum, "weight_decay": decay}
        torch._fused_sgd_(w, g, velocity, **rule, **options)

    def adamw(self, decay, w, g, first, second, steps):
        for each in steps:
            each += 1
        rule = {"lr": self.rule.lr, "beta1": self.rule.beta1, "beta2": self.rule.beta2, "weight_decay": decay}
        epsilon = self.rule.epsilon / math.sqrt(1.0 - self.rule.beta2**self.done)
        torch._fused_adamw_(w, g, first, second, [], steps, **rule, eps=epsilon, amsgrad=False, maximize=False)


class Answers(pytorch.Answers):
    pass
