"""torchvision's ResNet, written down from its names, after some steps of training.

  resnet.py FILE STEM BLOCK WIDTH DEPTH...

Writes its state_dict to FILE (safetensors) and prints, as JSON, images and the logarithms of the probabilities that it
gives each of 7 classes in an evaluation.
"""

import json
import struct
import sys
from pathlib import Path

import torch
from torch import nn


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, before, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(before, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample = None
        if stride != 1 or before != channels:
            self.downsample = nn.Sequential(nn.Conv2d(before, channels, 1, stride, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x):
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, before, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(before, channels, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, 4 * channels, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * channels)
        self.relu = nn.ReLU()
        self.downsample = None
        if stride != 1 or before != 4 * channels:
            self.downsample = nn.Sequential(nn.Conv2d(before, 4 * channels, 1, stride, bias=False),
                                            nn.BatchNorm2d(4 * channels))

    def forward(self, x):
        out = self.relu(self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))))
        return self.relu(self.bn3(self.conv3(out)) + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    def __init__(self, stem, block, width, depths, classes):
        super().__init__()
        imagenet = stem == "imagenet"
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False) if imagenet else nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, 2, 1) if imagenet else nn.Identity()
        before = width
        for stage, depth in enumerate(depths):
            channels = width << stage
            blocks = []
            for number in range(depth):
                blocks.append(block(before, channels, 2 if stage > 0 and number == 0 else 1))
                before = channels * block.expansion
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))
        self.stages = len(depths)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(before, classes)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for stage in range(self.stages):
            x = self.get_submodule(f"layer{stage + 1}")(x)
        return self.fc(self.avgpool(x).flatten(1))


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, tensor in tensors.items():
        raw = tensor.numpy().tobytes()
        header[name] = {"dtype": "I64" if tensor.dtype == torch.int64 else "F32", "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)


def main():
    path, stem, block, width, *depths = sys.argv[1:]
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = ResNet(stem, {"basic": BasicBlock, "bottleneck": Bottleneck}[block], int(width), [int(depth) for depth in depths], 7)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    images, targets = torch.randn(16, 3, 32, 32), torch.arange(16) % 7
    for _ in range(10):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), targets).backward()
        optimizer.step()
    write_safetensors(path, model.state_dict())
    model.eval()
    images = images[:3]
    with torch.no_grad():
        print(json.dumps({"images": images.flatten(1).tolist(), "logs": model(images).log_softmax(1).tolist()}))


if __name__ == "__main__":
    main()
