#!/usr/bin/env python3
"""What scripts/bench_gpu compares dtrun with: GPT-2 124M in PyTorch on one GPU, compiled, in bf16 by autocast, on the first
tokens of dtrun's file: dropout 0, tied head, clipping, AdamW fused. Prints one JSON object; {"skipped": why} where it
cannot run.

  bench_gpu_torch.py --batch 64 --steps 80 --tokens train.bin --attention flash|cudnn
"""

import argparse
import json
import time

WARMUP_STEPS = 5


def measured(options, torch, models):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    models.WIDTH, models.LAYERS, models.HEADS, models.LENGTH = 768, 12, 12, 1024
    models.VOCABULARY = 50304  # 50257 rounded up: as dtrun has it here
    torch.manual_seed(1)
    net = models.Gpt2().cuda()
    for parameter in net.parameters():
        if parameter.dim() > 1:  # as GPT-2 begins, or the loss is hundreds; and numbers decide what power a GPU takes
            torch.nn.init.normal_(parameter, std=0.02)
    run = torch.compile(net, dynamic=False)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
    with open(options.tokens, "rb") as stream:
        raw = bytearray(stream.read(2 * (options.batch * models.LENGTH + 1)))
    tokens = (torch.frombuffer(raw, dtype=torch.int16).long() & 0xffff).cuda()
    batch = [tokens[:-1].view(options.batch, -1), tokens[1:].view(options.batch, -1)]

    def train(steps):
        for _ in range(steps):
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = run(*batch)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
        torch.cuda.synchronize()

    with sdpa_kernel({"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}[options.attention]):
        train(WARMUP_STEPS)
        since = time.perf_counter()
        train(options.steps)
    return {"tokens_per_second": options.steps * options.batch * models.LENGTH / (time.perf_counter() - since),
            "peak_bytes": torch.cuda.max_memory_allocated(),
            "parameters": sum(parameter.numel() for parameter in net.parameters()), "torch": torch.__version__}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--tokens", metavar="FILE", required=True)
    parser.add_argument("--attention", choices=("flash", "cudnn"), required=True)
    options = parser.parse_args()
    try:
        import torch
        import bench_torch_models as models
    except ImportError as failure:
        return {"skipped": f"python3 has no PyTorch: {failure}"}
    if not torch.cuda.is_available():
        return {"skipped": f"PyTorch {torch.__version__} sees no GPU"}
    return measured(options, torch, models)


if __name__ == "__main__":
    print(json.dumps(main()))
