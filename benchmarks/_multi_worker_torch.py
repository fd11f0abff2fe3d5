"""A worker of `multi_worker.py` in PyTorch: `DistributedDataParallel` over gloo."""

import torch
import torch.distributed as dist
from _step_models import EPSILON, LEARNING_RATE, Dense, Model, initial_weights, replica_batches
from _workers import Requests, Train, arguments, serve, training
from torch.nn.parallel import DistributedDataParallel


def start() -> tuple[str, Requests]:
    rank, addresses = arguments()
    workers = len(addresses)
    dist.init_process_group(
        "gloo", init_method=f"tcp://{addresses[0]}", rank=rank, world_size=workers
    )

    def prepare(model: Model) -> Train:
        assert isinstance(model.net, Dense)
        module = DistributedDataParallel(Layers(model))
        optimizer = torch.optim.Adam(module.parameters(), LEARNING_RATE, eps=EPSILON)
        parts = replica_batches(model, workers)[rank]
        inputs, labels = torch.from_numpy(parts[0]), torch.from_numpy(parts[1]).long()

        def step() -> torch.Tensor:
            optimizer.zero_grad()
            # The mean over this worker's part: DDP takes the mean of the workers' gradients.
            loss = torch.nn.functional.cross_entropy(module(inputs), labels)
            loss.backward()
            optimizer.step()
            total = loss.detach() / workers
            dist.all_reduce(total)
            return total

        return lambda count: [float(loss) for loss in [step() for _ in range(count)]]

    return torch.__version__, training(prepare)


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


if __name__ == "__main__":
    serve(start)
