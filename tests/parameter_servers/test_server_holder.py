"""Checkpoints that servers write and read, also when one of them is lost meanwhile."""

# Looks into what workers and servers tell each other.
# pyright: basic

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import replicax as rx
from replicax._src.parameter_servers._server_holder import ServerHolder
from tests.parameter_servers.actors import Cluster, Lost


@pytest.fixture
def checkpoint(cluster: Cluster) -> rx.train.Checkpoint:
    cluster.view.holder = ServerHolder(cluster.view)
    made = {f"on_{server}": cluster.variable(np.full(3, server + 1.0), server) for server in (0, 1)}
    return rx.train.Checkpoint(**made)


def lost_once(cluster: Cluster, server: int, method: str) -> None:
    """Lets a server be lost at the next call of a method: what it held is gone."""

    def lose(original: Any, *args: Any) -> Any:
        del cluster.servers[server].around[method]
        raise Lost

    cluster.servers[server].around[method] = lose


@pytest.mark.parametrize("method", ["start_task", "task_outcome", "adopt_task"])
def test_a_server_that_is_lost_while_it_reads_reads_again(
    cluster: Cluster, checkpoint: Any, tmp_path: Path, method: str
):
    path = checkpoint.write(str(tmp_path / "saved"))
    checkpoint.on_0.assign(np.zeros(3))
    lost_once(cluster, 1, method)
    checkpoint.read(path)
    assert cluster.found.lives == [0, 1]
    np.testing.assert_array_equal(checkpoint.on_0.numpy(), np.full(3, 1.0))
    np.testing.assert_array_equal(checkpoint.on_1.numpy(), np.full(3, 2.0))


@pytest.mark.parametrize("method", ["start_task", "task_outcome"])
def test_a_server_that_is_lost_while_it_writes_is_an_error(
    cluster: Cluster, checkpoint: Any, tmp_path: Path, method: str
):
    """The values are gone with it, and the checkpoint before stays what it is."""
    manager = rx.train.CheckpointManager(checkpoint, tmp_path, max_to_keep=1)
    first = manager.save()
    manager.sync()
    checkpoint.on_0.assign(np.zeros(3))
    lost_once(cluster, 1, method)

    def save() -> None:
        manager.save()
        manager.sync()

    with pytest.raises(rx.errors.UnavailableError, match="Parameter server 1 was lost"):
        save()
    assert manager.latest_checkpoint == first
    checkpoint.restore(first)
    np.testing.assert_array_equal(checkpoint.on_0.numpy(), np.full(3, 1.0))
    np.testing.assert_array_equal(checkpoint.on_1.numpy(), np.full(3, 2.0))
