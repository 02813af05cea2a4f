"""A net whose parameters are spread over the ranks of a unit, which are the world that torch.distributed sees: by FSDP2, or by
hand, which works with every version of torch."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import parameters_to_vector

try:
    from torch.func import functional_call
except ImportError:  # before 2.0
    from torch.nn.utils.stateless import functional_call


class Gathered(torch.autograd.Function):
    """From this rank's part to the whole. The gradient is the mean over the ranks, and each keeps its part."""

    @staticmethod
    def forward(_, part):
        parts = [torch.empty_like(part) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, part.detach())
        return torch.cat(parts)

    @staticmethod
    def backward(_, gradient):
        gradient = gradient.contiguous()
        dist.all_reduce(gradient)
        return gradient.chunk(dist.get_world_size())[dist.get_rank()] / dist.get_world_size()


class ByHand(nn.Module):
    def __init__(self, net):
        super().__init__()
        self._net = [net]  # no child: its parameters are a vector here
        whole = parameters_to_vector(net.parameters()).detach()
        ranks = dist.get_world_size()
        padded = torch.cat([whole, torch.zeros(-len(whole) % ranks)])
        self.part = nn.Parameter(padded.chunk(ranks)[dist.get_rank()].clone())

    def forward(self, x):
        net, parameters, at = self._net[0], {}, 0
        whole = Gathered.apply(self.part)
        for name, parameter in net.named_parameters():
            parameters[name] = whole[at:at + parameter.numel()].view_as(parameter)
            at += parameter.numel()
        return functional_call(net, parameters, (x,))


def sharded(net, by_hand):
    if by_hand:
        return ByHand(net)
    from torch.distributed.fsdp import fully_shard

    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    return fully_shard(net)
