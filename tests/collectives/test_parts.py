"""What replicas have parts of: taken apart and put together in one stage or in several."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

from replicax._src.collectives import _parts
from replicax._src.devices import REPLICA_AXIS


def test_stages_give_what_one_gives(monkeypatch: pytest.MonkeyPatch):
    rows = np.arange(4).reshape(2, 2)
    mesh = Mesh(np.array(jax.devices()[:4]), (REPLICA_AXIS,))
    cut = PartitionSpec(None, REPLICA_AXIS)
    whole = np.arange(24.0, dtype=np.float32).reshape(3, 8)

    def both(x: jax.Array) -> list[jax.Array]:
        x = x * (1 + jax.lax.axis_index(REPLICA_AXIS))
        found: list[jax.Array] = []
        for stages in ([None], [rows.T.tolist(), rows.tolist()]):
            monkeypatch.setattr(_parts, "_stages", lambda stages=stages: stages)
            part = _parts.scattered_sum(x, 1)
            found += [part, _parts.whole_of_parts(part, 1)]
        return found

    program = jax.shard_map(
        both,
        mesh=mesh,
        in_specs=PartitionSpec(),
        out_specs=[cut, PartitionSpec(), cut, PartitionSpec()],
        check_vma=False,
    )
    for each in jax.jit(program)(jnp.asarray(whole)):
        np.testing.assert_array_equal(each, whole * 10)
