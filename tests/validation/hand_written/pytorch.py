"""A transformer in PyTorch, as an expert writes its training for one thread of a CPU.

What was tried, in CPU seconds of a step: products by oneDNN, forward and backward, in place of MKL's: on one AMD
processor 1.3 to 1.4 times as fast, on another 0.8 to 0.9, so a loop asks first; contiguous operands for them: no
difference; attention by the fused kernel in place of its composition: 1.05 to 1.4; fused optimisers. torch.compile
gains 1.03 to 1.06 after half a minute, with MKL's products alone: it refuses oneDNN's.

Inference, by way, in CPU seconds over the fused way's on one thread with AVX2: "eager" channels last 1.2 for ResNet-50
with one sample; "frozen" by TorchScript 1.2; "blocked", by torch.jit.optimize_for_inference, 1.1, and 1.7 where LRN
comes between. "fused" calls oneDNN's convolution with its sum and rectifier, on packed weights, as torch.compile does.
Linear layers by MKL: oneDNN's take 1.0 to 1.8 times as long, packed or not.
"""

import math

import torch
from pytorch_plain import OneDNN, onednn_is_faster
from torch.nn import functional as F  # noqa: N812 - the usual name


class Loop:
    def __init__(self, form, initial, batch, rule):
        self.form, self.rule, self.done = form, rule, 0
        self.w = {name: torch.nn.Parameter(torch.from_numpy(value.copy())) for name, value in initial.items()}
        self.x, self.y = torch.from_numpy(batch.inputs), torch.from_numpy(batch.labels).flatten()
        self.linear = (
            OneDNN.apply if onednn_is_faster(len(self.x) * form.tokens, form.width, 4 * form.width) else F.linear
        )
        matrices = [p for p in self.w.values() if sum(extent > 1 for extent in p.shape) > 1]
        others = [p for p in self.w.values() if all(p is not each for each in matrices)]
        groups = [{"params": matrices}, {"params": others, "weight_decay": 0.0}]
        if form.image:
            options = {"momentum": rule.momentum, "weight_decay": rule.weight_decay, "fused": True}
            self.optimiser = torch.optim.SGD(groups, rule.lr, **options)
        else:
            options = {"betas": (rule.beta1, rule.beta2), "weight_decay": rule.weight_decay, "fused": True}
            self.optimiser = torch.optim.AdamW(groups, rule.lr, **options)

    def dense(self, x, name):
        return self.linear(x, self.w[name + ".weight"], self.w[name + ".bias"])

    def norm(self, x, name):
        return F.layer_norm(x, x.shape[-1:], self.w[name + ".weight"], self.w[name + ".bias"], self.form.eps)

    def attention(self, x, name):
        n, t, width = x.shape
        q, k, v = self.dense(x, name + "_qkv").view(n, t, 3, self.form.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=not self.form.image)
        return self.dense(y.transpose(1, 2).reshape(n, t, width), name + "_out")

    def logits(self):
        w, form = self.w, self.form
        if form.image:
            n, size = len(self.x), form.patch
            patches = self.x.unfold(2, size, size).unfold(3, size, size).permute(0, 2, 3, 1, 4, 5)
            h = self.dense(patches.reshape(n, form.tokens - 1, -1), "patches")
            h = torch.cat([w["class_token.weight"].expand(n, 1, -1), h], 1)
        else:
            h = F.embedding(self.x, w["embedding.weight"])
        h = h + w["positions.weight"]
        for number in range(1, form.blocks + 1):
            name = f"block{number}"
            h = h + self.attention(self.norm(h, name + "_norm1"), name)
            z = F.gelu(self.dense(self.norm(h, name + "_norm2"), name + "_fc1"), approximate="tanh")
            h = h + self.dense(z, name + "_fc2")
        h = self.norm(h, "norm")
        return self.dense(h[:, 0], "fc") if form.image else self.linear(h, w["embedding.weight"], None)

    def step(self):
        self.optimiser.zero_grad(set_to_none=True)
        loss = F.cross_entropy(self.logits().flatten(0, -2), self.y)
        loss.backward()
        self.done += 1
        if not self.form.image:  # torch adds epsilon once the second moment is corrected
            for group in self.optimiser.param_groups:
                group["eps"] = self.rule.epsilon / math.sqrt(1.0 - self.rule.beta2**self.done)
        self.optimiser.step()
        return float(loss.detach())


class Answers(Loop):
    def __init__(self, network, form, tensors, inputs, way="fused"):
        self.network, self.form, self.way = network, form, way
        self.w = {name: torch.from_numpy(value) for name, value in tensors.items()}
        self.linear, self.packed = F.linear, {}
        self.layout = torch.contiguous_format if way == "blocked" else torch.channels_last
        if way == "fused":
            self.conv = self.conv_onednn
        elif way in ("frozen", "blocked"):
            module = torch.nn.Module()
            module.forward = self.forward
            with torch.no_grad():
                traced = torch.jit.trace(module.eval(), self.given(inputs), check_trace=False)
                self.forward = (torch.jit.freeze if way == "frozen" else torch.jit.optimize_for_inference)(traced)

    def given(self, inputs):
        x = torch.from_numpy(inputs)
        return x.contiguous(memory_format=self.layout) if x.dim() == 4 and not self.form else x

    def forward(self, x):
        return self.network(self, x)

    @torch.inference_mode()
    def answer(self, inputs):
        return self.forward(self.given(inputs)).numpy()

    def transformer(self, x):
        self.x = x
        return self.logits()

    def conv_onednn(self, x, name, stride=1, pad=0, relu=True, plus=None):
        w, b = self.w[name + ".weight"], self.w[name + ".bias"]
        window = [pad, pad], [stride, stride], [1, 1], 1
        if name not in self.packed:
            self.packed[name] = torch._C._nn.mkldnn_reorder_conv2d_weight(w.to_mkldnn(), *window, x.shape)
        w = self.packed[name]
        if plus is not None:
            return torch.ops.mkldnn._convolution_pointwise_.binary(plus, x, w, b, *window, "add", 1.0, "relu", [], "")
        return torch.ops.mkldnn._convolution_pointwise(x, w, b, *window, "relu" if relu else "none", [], "")

    def conv(self, x, name, stride=1, pad=0, relu=True, plus=None):
        y = F.conv2d(x, self.w[name + ".weight"], self.w[name + ".bias"], stride, pad)
        y = y if plus is None else y.add_(plus)
        return y.relu_() if relu else y

    def max_pool(self, x, kernel, stride, pad=0, ceil=False):
        return F.max_pool2d(x, kernel, stride, pad, ceil_mode=ceil)

    def lrn(self, x):
        channels = x.shape[1]
        name = f"band{channels}"
        if name + ".weight" not in self.w:
            apart = torch.arange(channels)
            band = (1e-4 / 5) * ((apart[:, None] - apart).abs() <= 2).float()[:, :, None, None]
            self.w[name + ".weight"], self.w[name + ".bias"] = band, torch.ones(channels)
        root = self.conv(x * x, name, relu=False).rsqrt_()
        return x * root.mul_(root.sqrt())

    def concat(self, xs):
        return torch.cat(xs, 1)

    def flat(self, x):
        return torch.flatten(x, 1)

    def mean(self, x):
        return x.mean((2, 3))

    def dense(self, x, name, relu=False):
        y = super().dense(x, name)
        return y.relu_() if relu else y
