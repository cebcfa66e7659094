"""A transformer in PyTorch, as an expert writes its training for one thread of a CPU.

What was tried, in CPU seconds of a step: products by oneDNN, forward and backward, in place of MKL's: on one AMD
processor 1.3 to 1.4 times as fast, on another 0.8 to 0.9, so a loop asks first; contiguous operands for them: no
difference; attention by the fused kernel in place of its composition: 1.05 to 1.4; fused optimisers. torch.compile
gains 1.03 to 1.06 after half a minute, with MKL's products alone: it refuses oneDNN's.
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
