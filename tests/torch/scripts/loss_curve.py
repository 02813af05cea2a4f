"""The losses of a training in PyTorch, in double precision, from given parameters on given batches.

  loss_curve.py SPEC.json

SPEC: `model` (a model.safetensors that says what it is), `data` and `train` of a config, `batches` (the samples of each
step) and `variants`, a name and what it changes in `train` for each. Prints the losses of each variant as JSON,
and the running statistics of batch norms at the end.
"""

import array
import json
import math
import struct
import sys
from pathlib import Path

import torch
from torch import nn

torch.set_default_dtype(torch.float64)


def read_safetensors(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = bytearray(file.read())
    about = header.pop("__metadata__")
    tensors = {}
    for name, tensor in header.items():
        begin, end = tensor["data_offsets"]
        values = torch.frombuffer(data, dtype=torch.float32, count=(end - begin) // 4, offset=begin)
        tensors[name] = values.reshape(tensor["shape"]).double()
    return about, tensors


class Gpt2(nn.Module):
    """transformers' GPT-2."""

    def __init__(self, config):
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel
        self.model = GPT2LMHeadModel(GPT2Config(**json.loads(config), attn_implementation="eager"))

    def load(self, tensors):
        missing, unexpected = self.model.transformer.load_state_dict(tensors, strict=False)
        assert not unexpected and all(name.endswith(("attn.bias", "attn.masked_bias")) for name in missing), missing
        self.model.tie_weights()

    def forward(self, tokens):
        return self.model(tokens).logits.flatten(0, 1)


class Chain(nn.Sequential):
    """The modules that the file names; log-softmax twice is log-softmax once."""

    def __init__(self, layers):
        super().__init__()
        for number, layer in enumerate(layers.split(" -> ")):
            name, _, module = layer.rpartition("=")
            self.add_module(name or str(number), eval("nn." + module))

    def load(self, tensors):
        self.load_state_dict(tensors)


def read_data(data):
    path = Path(data["path"])
    if data["type"] == "tokens":
        tokens = torch.tensor(array.array("H", (path / "train.bin").read_bytes()).tolist())
        length = data["sequence_length"]
        samples = (len(tokens) - 1) // length
        return tokens[:samples * length].reshape(samples, length), tokens[1:samples * length + 1].reshape(samples, length)
    images = (path / "train-images-idx3-ubyte").read_bytes()
    count, height, width = struct.unpack(">3I", images[4:16])
    values = torch.frombuffer(bytearray(images[16:]), dtype=torch.uint8).double() / 255
    labels = torch.tensor(list((path / "train-labels-idx1-ubyte").read_bytes()[8:]))
    return ((values - data["mean"]) / data["std"]).reshape(count, 1, height, width), labels


def rate(train, step, steps):
    """Of transformers' get_cosine_schedule_with_warmup."""
    warmup = train["warmup_steps"]
    if step < warmup:
        return train["learning_rate"] * step / warmup
    return train["learning_rate"] * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))


def make_optimizer(train, model):
    parameters = list(model.parameters())
    groups = [{"params": [p for p in parameters if p.ndim >= 2], "weight_decay": train["weight_decay"]},
              {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0}]
    if train["optim"] == "sgd":
        return torch.optim.SGD(groups if train.get("decay_weights_only") else parameters, lr=1, momentum=train["momentum"], weight_decay=train["weight_decay"],
                               nesterov=train["nesterov"])
    return torch.optim.AdamW(groups, lr=1, betas=(train["adam_beta1"], train["adam_beta2"]), eps=train["adam_epsilon"])


def watch_norms(model):
    """A list of what reaches each batch norm, and its running statistics, which the caller updates."""
    norms = {}
    for name, norm in model.named_modules():
        if isinstance(norm, nn.modules.batchnorm._BatchNorm):
            norms[name] = (norm, [], norm.running_mean.clone(), norm.running_var.clone())
            norm.register_forward_pre_hook(lambda _, arguments, seen=norms[name][1]: seen.append(arguments[0].detach()))
    return norms


def losses(spec, train, about, tensors, inputs, targets):
    model = Gpt2(about["config"]) if "config" in about else Chain(about["layers"])
    model.load(tensors)
    optimizer = make_optimizer(train, model)
    norms = watch_norms(model)
    found = []
    for step, batch in enumerate(spec["batches"]):
        for group in optimizer.param_groups:
            group["lr"] = rate(train, step, len(spec["batches"]))
        optimizer.zero_grad()
        # Batch norms see a group of microbatches at a time, their running statistics the whole step.
        together = train["micro_batch_size"] * train.get("batch_norm_group", 1) or len(batch)
        logits = torch.cat([model(part) for part in inputs[batch].split(together)])
        loss = nn.functional.cross_entropy(logits, targets[batch].flatten(),
                                           label_smoothing=train["label_smoothing_factor"])
        loss.backward()
        for norm, seen, mean, variance in norms.values():
            nn.functional.batch_norm(torch.cat(seen), mean, variance, training=True, momentum=norm.momentum)
            seen.clear()
        if train["max_grad_norm"] > 0:
            nn.utils.clip_grad_norm_(model.parameters(), train["max_grad_norm"])
        optimizer.step()
        found.append(loss.item())
    running = {}
    for name, (_, _, mean, variance) in norms.items():
        running |= {name + ".running_mean": mean.tolist(), name + ".running_var": variance.tolist()}
    return {"losses": found, "running": running}


def main():
    torch.set_num_threads(1)
    spec = json.loads(Path(sys.argv[1]).read_text())
    about, tensors = read_safetensors(spec["model"])
    inputs, targets = read_data(spec["data"])
    print(json.dumps({name: losses(spec, spec["train"] | change, about, tensors, inputs, targets)
                      for name, change in spec["variants"].items()}))


if __name__ == "__main__":
    main()
