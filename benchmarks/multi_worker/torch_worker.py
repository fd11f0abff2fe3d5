"""A worker in PyTorch: `DistributedDataParallel` over gloo."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from benchmarks.harness.sides import Side, Work
from benchmarks.training.models import (
    EPSILON,
    LEARNING_RATE,
    MODELS,
    Dense,
    Model,
    initial_weights,
    replica_batches,
)


class TorchWorker(Side):
    """Steps of models that have dense layers only."""

    version = torch.__version__

    def __init__(self, rank: int, addresses: list[str]):
        self.rank, self.workers = rank, len(addresses)
        dist.init_process_group(
            "gloo", init_method=f"tcp://{addresses[0]}", rank=rank, world_size=self.workers
        )

    def prepare(self, name: str) -> Work:
        model = MODELS[name]
        assert isinstance(model.net, Dense)
        module = DistributedDataParallel(Layers(model))
        optimizer = torch.optim.Adam(module.parameters(), LEARNING_RATE, eps=EPSILON)
        parts = replica_batches(model, self.workers)[self.rank]
        inputs, labels = torch.from_numpy(parts[0]), torch.from_numpy(parts[1]).long()

        def step() -> torch.Tensor:
            optimizer.zero_grad()
            # The mean over this worker's part: DDP takes the mean of the workers' gradients.
            loss = torch.nn.functional.cross_entropy(module(inputs), labels)
            loss.backward()
            optimizer.step()
            total = loss.detach() / self.workers
            dist.all_reduce(total)
            return total

        return lambda count: [float(loss) for loss in [step() for _ in range(count)]]


class Layers(torch.nn.Module):
    """Dense layers with biases."""

    def __init__(self, model: Model):
        super().__init__()
        self.weights = torch.nn.ParameterList(
            torch.from_numpy(weight.T.copy()) for weight in initial_weights(model)
        )

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = inputs
        weights = list(self.weights)
        for kernel, bias in zip(weights[:-2:2], weights[1:-2:2], strict=True):
            hidden = torch.relu(torch.nn.functional.linear(hidden, kernel, bias))
        return torch.nn.functional.linear(hidden, weights[-2], weights[-1])
