"""The largest difference of a loss and a gradient from those that PyTorch computes of a student beside its teacher.

  distillation.py DIRECTORY TEMPERATURE ALPHA SMOOTHING LOSS

DIRECTORY has the models `student` and `teacher`, the student's gradient as a third, and images of 28x28 floats; LOSS is the sum
over them. Differences are relative to the largest number of a tensor, or to 1 where that is less.
"""

import json
import struct
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional


def read(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    about = header.pop("__metadata__")
    values = torch.frombuffer(bytearray(data[8 + size:]), dtype=torch.float32)
    return about, {name: values[t["data_offsets"][0] // 4:t["data_offsets"][1] // 4].reshape(t["shape"]) for name, t in header.items()}


def logits_of(path):
    about, tensors = read(path)
    model = nn.Sequential()
    for number, layer in enumerate(about["layers"].split(" -> ")[:-1]):  # without the LogSoftmax
        name, _, module = layer.rpartition("=")
        model.add_module(name or str(number), eval("nn." + module))
    model.load_state_dict(tensors)
    return model


def main():
    folder = Path(sys.argv[1])
    temperature, alpha, smoothing, loss = map(float, sys.argv[2:])
    student, teacher = (logits_of(folder / name / "model.safetensors") for name in ("student", "teacher"))
    images = torch.frombuffer(bytearray((folder / "images").read_bytes()), dtype=torch.float32).reshape(-1, 1, 28, 28)
    targets = torch.arange(len(images)) * 7 % 10
    logits = student(images)
    with torch.no_grad():
        taught = teacher(images)
    divergence = functional.kl_div(torch.log_softmax(logits / temperature, 1), torch.log_softmax(taught / temperature, 1),
                                   reduction="sum", log_target=True)
    assert divergence > 1
    theirs = alpha * temperature**2 * divergence + (1 - alpha) * functional.cross_entropy(
        logits, targets, reduction="sum", label_smoothing=smoothing)
    theirs.backward()
    worst = abs(theirs.item() - loss) / max(1, theirs.item())
    ours = read(folder / "gradient" / "model.safetensors")[1]
    for name, parameter in student.named_parameters():
        scale = max(1, parameter.grad.abs().max().item())
        worst = max(worst, (ours[name] - parameter.grad).abs().max().item() / scale)
    print(worst)


if __name__ == "__main__":
    main()
