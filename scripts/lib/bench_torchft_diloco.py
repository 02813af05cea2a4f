#!/usr/bin/python3
"""What docs/local-sgd.md compares local replicas with: the same training by torchft's DiLoCo, a replica group of one
process for each replica, on the same samples from the same values. Prints one JSON object.

  bench_torchft_diloco.py RUN INITIAL

RUN: the output directory of a run of dtrun, whose config.json says everything: a GPT-2 on bytes of text, AdamW, a cosine,
train.local_replicas and its outer options. INITIAL: the model.safetensors that it began with, which is what the same job
leaves with train.max_steps=1 train.warmup_steps=1, whose one step has a learning rate of 0.
"""

import argparse
import datetime
import json
import math
import pathlib
import struct

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torchft import Manager, ProcessGroupGloo
from torchft.coordination import LighthouseServer
from torchft.local_sgd import DiLoCo

import bench_torch_models

PATIENCE = datetime.timedelta(minutes=10)
MASK = (1 << 32) - 1
SHUFFLE = 2  # worker/core/philox.h


def philox(counter, key):
    counter, key = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [(b >> 32) ^ counter[1] ^ key[0], b & MASK, (a >> 32) ^ counter[3] ^ key[1], a & MASK]
        key = [(key[0] + 0x9E3779B9) & MASK, (key[1] + 0xBB67AE85) & MASK]
    return counter


def order_of(seed, epoch, samples):
    """As worker/core/sampler.cc has it."""
    order = list(range(samples))
    for i in range(samples, 1, -1):
        bits = philox((i >> 2, epoch, 0, SHUFFLE), (seed & MASK, seed >> 32))[i & 3]
        other = bits * i >> 32
        order[i - 1], order[other] = order[other], order[i - 1]
    return torch.tensor(order)


def read_text(data):
    """The samples of both splits, each with the byte behind it."""
    folder, length = pathlib.Path(data["path"]), data["sequence_length"]
    text = torch.frombuffer(bytearray(b"".join(p.read_bytes() for p in sorted(folder.rglob(data["files"])))), dtype=torch.uint8)
    test = int(len(text) * data["test_fraction"])
    return [part.unfold(0, length + 1, length).long() for part in (text[:len(text) - test], text[len(text) - test:])]


def load(net, path):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = bytearray(file.read())
    state = {}
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        begin, end = tensor["data_offsets"]
        values = torch.frombuffer(data, dtype=torch.float32, count=(end - begin) // 4, offset=begin).reshape(tensor["shape"])
        is_matrix = name.startswith("h.") and values.ndim == 2  # a Conv1D of transformers
        name = name.replace(".mlp.c_proj", ".c_out").replace(".mlp.", ".").replace(".attn.", ".")
        state[name] = values.T if is_matrix else values
    net.load_state_dict(state)


def rate(train, step):
    """Of transformers' get_cosine_schedule_with_warmup."""
    steps, warmup = train["max_steps"], train["warmup_steps"]
    if step < warmup:
        return train["learning_rate"] * step / warmup
    return train["learning_rate"] * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))


def replica(number, options, config, lighthouse, results):
    torch.set_num_threads(1)
    model, train = config["model"], config["train"]
    bench_torch_models.WIDTH, bench_torch_models.LAYERS = model["n_embd"], model["n_layer"]
    bench_torch_models.HEADS, bench_torch_models.LENGTH = model["n_head"], model["n_positions"]
    net = bench_torch_models.Gpt2()
    load(net, options.initial)
    decays = [p for p in net.parameters() if p.ndim >= 2], [p for p in net.parameters() if p.ndim < 2]
    inner = torch.optim.AdamW([{"params": decays[0], "weight_decay": train["weight_decay"]},
                               {"params": decays[1], "weight_decay": 0.0}],
                              betas=(train["adam_beta1"], train["adam_beta2"]), eps=train["adam_epsilon"])
    momentum = train["outer_momentum"]
    outer = torch.optim.SGD(net.parameters(), lr=train["outer_learning_rate"], momentum=momentum, nesterov=momentum > 0)
    samples, test = read_text(config["data"])
    batch, replicas = train["global_batch_size"], train["local_replicas"]
    epoch_steps = len(samples) // batch
    assert train["max_steps"] <= epoch_steps, "more than an epoch"
    order = order_of(train["seed"], 0, len(samples))
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = Manager(pg=ProcessGroupGloo(timeout=PATIENCE), min_replica_size=replicas, load_state_dict=net.load_state_dict,
                      state_dict=net.state_dict, use_async_quorum=False, timeout=PATIENCE, quorum_timeout=PATIENCE,
                      rank=0, world_size=1, store_addr="127.0.0.1", store_port=store.port, lighthouse_addr=lighthouse,
                      replica_id=str(number), hostname="127.0.0.1", init_sync=False)
    own = batch // replicas
    with DiLoCo(manager, [net], inner, outer, sync_every=train["sync_every"]):
        for step in range(train["max_steps"]):
            rows = samples[order[step * batch + number * own:step * batch + (number + 1) * own]]
            for group in inner.param_groups:
                group["lr"] = rate(train, step)
            inner.zero_grad()
            net(rows[:, :-1], rows[:, 1:]).backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), train["max_grad_norm"])
            inner.step()
    assert manager.num_participants() == replicas and manager.current_step() == train["max_steps"] // train["sync_every"]
    with torch.no_grad():
        parameters = torch.cat([p.flatten() for p in net.parameters()]).double().sum().item()
        parts = test.split(64) if number == 0 else []
        loss = sum((net(rows[:, :-1], rows[:, 1:]) * len(rows)).item() for rows in parts) / len(test)
    results.put((parameters, loss))
    manager.shutdown(wait=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=pathlib.Path)
    parser.add_argument("initial", type=pathlib.Path)
    options = parser.parse_args()
    config = json.loads((options.run / "config.json").read_text())
    train = config["train"]
    assert train["max_steps"] % train["sync_every"] == 0
    lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=train["local_replicas"], join_timeout_ms=60000)
    results = mp.get_context("spawn").SimpleQueue()
    mp.spawn(replica, args=(options, config, lighthouse.address(), results), nprocs=train["local_replicas"])
    ended = [results.get() for _ in range(train["local_replicas"])]
    lighthouse.shutdown()
    assert len({parameters for parameters, _ in ended}) == 1, "replicas have other parameters"
    print(json.dumps({"torch": torch.__version__, "replicas": train["local_replicas"], "every": train["sync_every"],
                      "outer": [train["outer_learning_rate"], train["outer_momentum"]],
                      "test_loss": max(loss for _, loss in ended)}))


if __name__ == "__main__":
    main()
