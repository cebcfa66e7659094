"""The five networks as a PyTorch user writes them by hand: what the adapter's speed is held against.

Modules are registered in the order in which the workload's graph has its layers, so that
weights can be handed over one after the other. `by_onednn` adds what an expert does where MKL is slow.
"""

import time
from functools import cache

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - the usual name


class MnistSmall(nn.Module):
    def __init__(self, lrn):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.fc1 = nn.Linear(32 * 14 * 14, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x), inplace=True), 2)
        x = F.relu(self.fc1(torch.flatten(x, 1)), inplace=True)
        return self.fc2(x)


class MnistLarge(nn.Module):
    def __init__(self, lrn):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 128, 3, padding=1)
        self.conv2 = nn.Conv2d(128, 256, 3, padding=1)
        self.conv3 = nn.Conv2d(256, 512, 3, padding=1)
        self.fc1 = nn.Linear(512 * 3 * 3, 512)
        self.fc2 = nn.Linear(512, 512)
        self.fc3 = nn.Linear(512, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x), inplace=True), 2)
        x = F.max_pool2d(F.relu(self.conv2(x), inplace=True), 2)
        x = F.max_pool2d(F.relu(self.conv3(x), inplace=True), 2)
        x = F.relu(self.fc1(torch.flatten(x, 1)), inplace=True)
        x = F.relu(self.fc2(x), inplace=True)
        return self.fc3(x)


class AlexNet(nn.Module):
    def __init__(self, lrn):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 96, 11, stride=4),
            nn.ReLU(inplace=True),
            lrn(),
            nn.MaxPool2d(3, 2),
            nn.Conv2d(96, 256, 5, padding=2, groups=2),
            nn.ReLU(inplace=True),
            lrn(),
            nn.MaxPool2d(3, 2),
            nn.Conv2d(256, 384, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(384, 384, 3, padding=1, groups=2),
            nn.ReLU(inplace=True),
            nn.Conv2d(384, 256, 3, padding=1, groups=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2),
        )
        self.classifier = nn.Sequential(
            nn.Linear(256 * 6 * 6, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(0.5),
            nn.Linear(4096, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(0.5),
            nn.Linear(4096, 1000),
        )

    def forward(self, x):
        return self.classifier(torch.flatten(self.features(x), 1))


class ConvReLU(nn.Module):
    def __init__(self, *args, **kwargs):
        super().__init__()
        self.conv = nn.Conv2d(*args, **kwargs)

    def forward(self, x):
        return F.relu(self.conv(x), inplace=True)


class Inception(nn.Module):
    def __init__(self, channels, one, reduce3, three, reduce5, five, project):
        super().__init__()
        self.branch1 = ConvReLU(channels, one, 1)
        self.branch2 = nn.Sequential(ConvReLU(channels, reduce3, 1), ConvReLU(reduce3, three, 3, padding=1))
        self.branch3 = nn.Sequential(ConvReLU(channels, reduce5, 1), ConvReLU(reduce5, five, 5, padding=2))
        self.branch4 = nn.Sequential(nn.MaxPool2d(3, 1, padding=1, ceil_mode=True), ConvReLU(channels, project, 1))

    def forward(self, x):
        return torch.cat([self.branch1(x), self.branch2(x), self.branch3(x), self.branch4(x)], 1)


class Auxiliary(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = ConvReLU(channels, 128, 1)
        self.fc1 = nn.Linear(128 * 4 * 4, 1024)
        self.dropout = nn.Dropout(0.7)
        self.fc2 = nn.Linear(1024, 1000)

    def forward(self, x):
        x = torch.flatten(self.conv(F.avg_pool2d(x, 5, 3)), 1)
        return self.fc2(self.dropout(F.relu(self.fc1(x), inplace=True)))


class GoogLeNet(nn.Module):
    def __init__(self, lrn):
        super().__init__()
        self.stem = nn.Sequential(
            ConvReLU(3, 64, 7, stride=2, padding=3),
            nn.MaxPool2d(3, 2, ceil_mode=True),
            lrn(),
            ConvReLU(64, 64, 1),
            ConvReLU(64, 192, 3, padding=1),
            lrn(),
            nn.MaxPool2d(3, 2, ceil_mode=True),
        )
        self.pool = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.a3 = Inception(192, 64, 96, 128, 16, 32, 32)
        self.b3 = Inception(256, 128, 128, 192, 32, 96, 64)
        self.a4 = Inception(480, 192, 96, 208, 16, 48, 64)
        self.loss1 = Auxiliary(512)
        self.b4 = Inception(512, 160, 112, 224, 24, 64, 64)
        self.c4 = Inception(512, 128, 128, 256, 24, 64, 64)
        self.d4 = Inception(512, 112, 144, 288, 32, 64, 64)
        self.loss2 = Auxiliary(528)
        self.e4 = Inception(528, 256, 160, 320, 32, 128, 128)
        self.a5 = Inception(832, 256, 160, 320, 32, 128, 128)
        self.b5 = Inception(832, 384, 192, 384, 48, 128, 128)
        self.dropout = nn.Dropout(0.4)
        self.fc = nn.Linear(1024, 1000)

    def forward(self, x):
        x = self.a4(self.pool(self.b3(self.a3(self.stem(x)))))
        first = self.loss1(x)
        x = self.d4(self.c4(self.b4(x)))
        second = self.loss2(x)
        x = self.b5(self.a5(self.pool(self.e4(x))))
        x = self.dropout(torch.flatten(F.avg_pool2d(x, 7, 1), 1))
        return first, second, self.fc(x)


class Bottleneck(nn.Module):
    def __init__(self, channels, width, stride, project):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.project = None
        if project:
            self.project = nn.Sequential(
                nn.Conv2d(channels, 4 * width, 1, stride=stride, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += x if self.project is None else self.project(x)
        return self.relu(y)


class ResNet50(nn.Module):
    def __init__(self, lrn):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        blocks, channels = [], 64
        for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for index in range(count):
                blocks.append(Bottleneck(channels, width, stride if index == 0 else 1, index == 0))
                channels = 4 * width
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(2048, 1000)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x)), inplace=True), 3, 2, padding=1)
        return self.fc(torch.flatten(F.avg_pool2d(self.blocks(x), 7), 1))


NETWORKS = {
    "alexnet": AlexNet,
    "googlenet": GoogLeNet,
    "mnist_large": MnistLarge,
    "mnist_small": MnistSmall,
    "resnet50": ResNet50,
}


linear = torch.ops.mkldnn._linear_pointwise


class OneDNN(torch.autograd.Function):
    """y = x w^T + b over the last axis, all three products by oneDNN: torch itself asks it for bfloat16 alone."""

    @staticmethod
    def forward(context, x, w, b):
        rows = x.reshape(-1, x.shape[-1])
        context.save_for_backward(rows, w)
        context.shape, context.biased = x.shape, b is not None
        return linear(rows, w, b, "none", [], "").view(*x.shape[:-1], len(w))

    @staticmethod
    def backward(context, dy):
        rows, w = context.saved_tensors
        dy = dy.reshape(len(rows), -1)
        dx = linear(dy, w.t(), None, "none", [], "").view(context.shape)
        return dx, linear(dy.t(), rows.t(), None, "none", [], ""), dy.sum(0) if context.biased else None


class OneDNNLinear(nn.Linear):
    def forward(self, x):
        return OneDNN.apply(x, self.weight, self.bias)


@cache
def onednn_is_faster(rows, width, out):
    """Return whether it multiplies faster than MKL here, by the fastest of several runs forward and backward."""
    x, w, b = (nn.Parameter(torch.randn(shape)) for shape in ((rows, width), (out, width), (out,)))
    found = []
    for way in (OneDNN.apply, F.linear):
        taken = []
        for _ in range(7):
            begun = time.process_time()
            way(x, w, b).sum().backward()
            taken.append(time.process_time() - begun)
        found.append(min(taken))
    return found[0] < found[1]


def by_onednn(network, batch):
    """Let oneDNN compute what it computes faster than MKL on this processor.

    What each brought on a Zen 5, one thread, AlexNet batch 8 and the others batch 4, in CPU seconds. Dense layers (MKL
    takes twice as long): AlexNet 1.2 times as fast. 1x1 convolutions, forward and backward, where torch would call MKL
    (a dilated one of 1x1 is the same, and is never given to MKL): ResNet-50 1.37, GoogLeNet 1.17;
    `torch.mkldnn_convolution` does so in the forward alone: 466 ms of ResNet-50's 1x1 layers instead of 562, dilation
    239. Huge pages: ResNet-50 1.08, no difference elsewhere. Without gain: never mapping memory (MALLOC_MMAP_MAX_=0),
    glibc's own huge pages. On another processor of AMD's MKL is the faster one.
    """
    for module in network.modules():
        pointwise = type(module) is nn.Conv2d and module.kernel_size == (1, 1) and module.stride == (1, 1)
        if type(module) is nn.Linear and onednn_is_faster(batch, module.in_features, module.out_features):
            module.__class__ = OneDNNLinear
        elif pointwise and onednn_is_faster(batch * 14 * 14, module.in_channels, module.out_channels):
            module.dilation = (2, 2)
    return network


def criterion(outputs, labels):
    """Mean cross-entropy; GoogLeNet's auxiliary heads count 0.3."""
    if isinstance(outputs, tuple):
        first, second, last = outputs
        return 0.3 * (F.cross_entropy(first, labels) + F.cross_entropy(second, labels)) + F.cross_entropy(last, labels)
    return F.cross_entropy(outputs, labels)


def plain(name, weights, lrn):
    """The hand-written network in channels_last with these weights, in the graph's order."""
    network = NETWORKS[name](lrn)
    parameters = list(network.parameters())
    assert len(parameters) == len(weights), (len(parameters), len(weights))
    with torch.no_grad():
        for parameter, values in zip(parameters, weights, strict=True):
            assert parameter.shape == values.shape, (tuple(parameter.shape), values.shape)
            parameter.copy_(torch.from_numpy(values))
    return network.to(memory_format=torch.channels_last).train()
