"""Parameter servers in this process."""

# pyright: basic

from types import SimpleNamespace

import pytest


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest):
    from replicax._src.parameter_servers import _dispatcher, _servers, _worker
    from tests.parameter_servers import actors

    ray = pytest.importorskip("ray")
    fake = SimpleNamespace(
        get=actors.get,
        is_initialized=lambda: True,
        exceptions=ray.exceptions,
        cloudpickle=ray.cloudpickle,
    )
    for module in (_servers, _worker):
        monkeypatch.setattr(module, "imported_ray", lambda: fake)
    monkeypatch.setattr(_dispatcher, "_AT_ONCE", 1)
    monkeypatch.setattr(_worker.Worker, "current", None)
    actors.ran.clear()
    made = actors.Cluster(**getattr(request, "param", {}))
    fake.kill = lambda actor, no_restart: (actors.note(f"kill, {no_restart}"), made.start_worker())
    yield made
    made.dispatcher.close()
