"""Programs that nobody had in mind are recorded, and their steps run again with the same bits."""

import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import replicax as rx
from replicax._src.checkpoints import variables_in
from replicax._src.recording import last_step_of, write_capsule
from replicax._src.recording._compared import compared
from replicax._src.recording._inputs import in_line
from replicax._src.recording._recorded import Step
from tests.replicas import mirrored
from tests.scripts import run_python
from tests.under_test import cpus


class Sum:
    """What most of these programs change."""

    def __init__(self) -> None:
        self.w = rx.Variable(0.5, name="w")
        self.checkpoint = rx.train.Checkpoint(w=self.w)

    def adding(self, value_of: Callable[..., Any]) -> Any:
        """Returns a step that adds what a function makes of the arguments."""

        def step(*args: Any, **kwargs: Any) -> Any:
            self.w.assign(self.w * 1.5 + value_of(*args, **kwargs))
            return self.w * 1

        return rx.function(step)


def replayed(path: Path, checkpoint: Any, step: Any, run: Callable[[], object]) -> rx.debug.Capsule:
    """Records what `run` does, runs each step again, and compares them; returns the capsule."""
    with rx.debug.Recorder(checkpoint, step, path / "r") as recorder:
        run()
        count = recorder.step
        capsule = rx.debug.load(recorder.save())
    capsule.attach(checkpoint, step)
    assert list(capsule.steps) == list(range(1, count + 1))
    for number in capsule.steps:
        again = capsule.run(number)
        assert again.same_bits, (number, again)
    return capsule


def test_arguments_of_all_kinds(tmp_path: Path):
    program = Sum()

    def value_of(nested: Any, *arrays: Any, none: Any, z: Any, a: Any) -> Any:
        assert none is None
        sums = [jnp.sum(jnp.real(each).astype(jnp.float32)) for each in arrays]
        return sum(sums) + nested["y"] * 10 + nested["x"][0]["k"] + 100 * z + a["b"] + len(a["raw"])

    step = program.adding(value_of)
    arrays = [
        *(jnp.ones(3, jnp.bfloat16), jnp.ones(3, jnp.int4), jnp.ones(2, jnp.float8_e4m3fn)),
        *(jnp.ones(2, jnp.complex64), np.ones((0, 3), np.float32), jnp.zeros((0,)), np.float64(3)),
        *(np.ones((2, 2), np.float32).T, True, 3, 2.5, 1 + 2j, np.bool_(True), 10**6),
    ]

    def run() -> None:
        step({"y": jnp.float32(1), "x": [{"k": 2}]}, *arrays, none=None, z=3.0, a=A)
        step({"x": [{"k": 3}], "y": jnp.float32(4)}, *arrays, a=A, z=4.0, none=None)

    capsule = replayed(tmp_path, program.checkpoint, step, run)
    _, *again = capsule.inputs[0]
    assert [getattr(each, "dtype", type(each)) for each in again] == [
        getattr(each, "dtype", type(each)) for each in arrays
    ]


A = {"b": np.float32(2), "raw": b"\x00bytes"}


def test_arrays_that_the_program_changes_in_place(tmp_path: Path):
    program = Sum()
    step = program.adding(jnp.sum)
    buffer = np.zeros(1000, np.float32)
    data = iter(rx.data.Dataset.from_tensor_slices(np.arange(4000, dtype=np.float32)).batch(1000))

    def run() -> None:
        for number in range(3):
            buffer[:] = number
            step(buffer)
            buffer[:] = -1
        x = np.array(next(data))
        step(x)
        x = next(data)
        if x.flags.writeable:
            x /= 7
        step(x)

    replayed(tmp_path, program.checkpoint, step, run)


def test_data_sets_that_look_alike(tmp_path: Path):
    program = Sum()
    step = program.adding(lambda x, y, it: jnp.sum(x) + 3 * jnp.sum(y) + 7 * jnp.sum(next(it)))

    def over(first: float) -> Iterator[Any]:
        rows = np.arange(first, first + 12, dtype=np.float32)
        return iter(rx.data.Dataset.from_tensor_slices(rows).shuffle(12).batch(2))

    a, b, c = over(0), over(100), over(1000)
    replayed(
        tmp_path,
        program.checkpoint,
        step,
        lambda: [step(next(a), next(b), c) for _ in range(3)],
    )


def test_data_that_no_generator_gives_again(tmp_path: Path):
    program, random = Sum(), np.random.default_rng()

    def rows() -> Iterator[Any]:
        while True:
            yield random.normal(size=3).astype(np.float32)

    spec = rx.TensorSpec([3], np.float32)
    data = iter(rx.data.Dataset.from_generator(rows, output_signature=spec).batch(2))
    step = program.adding(jnp.sum)
    replayed(tmp_path, program.checkpoint, step, lambda: [step(next(data)) for _ in range(3)])
    with rx.debug.Recorder(program.checkpoint, step, tmp_path / "b", rows=False) as recorder:
        step(next(data))
        capsule = rx.debug.load(recorder.save())
    assert not any(".npy" in name for name in capsule.contents), "its position alone"


def test_epochs_with_iterators_of_their_own(tmp_path: Path):
    program = Sum()
    step = program.adding(jnp.sum)
    rows = np.arange(12, dtype=np.float32)
    data = rx.data.Dataset.from_tensor_slices(rows).shuffle(12).batch(4)
    is_there = iter(data)
    run = lambda: [step(x) for _ in range(3) for x in data]  # noqa: E731
    assert replayed(tmp_path, program.checkpoint, step, run).step == 9
    del is_there


def test_threads_that_make_steps_take_turns(tmp_path: Path):
    program = Sum()
    step = program.adding(lambda x: x)

    def make(first: int) -> None:
        for number in range(5):
            step(jnp.float32(first + number))

    def run() -> None:
        threads = [threading.Thread(target=make, args=(10 * n,)) for n in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()

    capsule = replayed(tmp_path, program.checkpoint, step, run)
    assert capsule.step == 20


def test_a_manager_that_saves_in_another_thread(tmp_path: Path):
    program = Sum()
    step = program.adding(lambda x: x)
    manager = rx.train.CheckpointManager(program.checkpoint, tmp_path / "c", max_to_keep=None)
    is_over = threading.Event()

    def save() -> None:
        while not is_over.is_set():
            manager.save()

    with rx.debug.Recorder(manager, step, tmp_path / "r") as recorder:
        thread = threading.Thread(target=save)
        thread.start()
        for number in range(40):
            step(jnp.float32(number))
        is_over.set()
        thread.join()
        capsule = rx.debug.load(recorder.save())
    capsule.attach(manager, step)
    for number in capsule.steps:
        assert capsule.run(number).same_bits


@pytest.mark.parametrize("looks", [False, True])
def test_what_the_step_changes_and_no_checkpoint_has(tmp_path: Path, looks: bool):
    strategy = mirrored(2)
    with strategy.scope():
        w = rx.Variable(0.0, aggregation="MEAN")
        generator = rx.random.Generator.from_seed(3)
        mean = rx.metrics.Mean()
    own = rx.Variable(1.0)

    @rx.function
    def step(x: Any) -> Any:
        def on_replica(x: Any) -> Any:
            w.assign_add(generator.normal(()) * x)
            mean.update_state(w.read_value())
            return w.read_value()

        own.assign(own * 2)
        return strategy.reduce("MEAN", strategy.run(on_replica, args=(x,)), axis=None) * own

    traps = rx.debug.Traps(finite=True, bits=True) if looks else None
    manager = rx.train.CheckpointManager(rx.train.Checkpoint(w=w), tmp_path / "c")
    with rx.debug.Recorder(manager, step, tmp_path / "r", traps=traps) as recorder:
        for number in range(8):
            step(jnp.float32(number))
            if number % 2:
                manager.save()
        capsule = rx.debug.load(recorder.save())
    names = {each.name for each in (tmp_path / "r").iterdir()}
    assert "unsaved-0" not in names and "unsaved-6" in names, "the ring has no more of them"
    assert any(name.startswith("unsaved: ") for name in capsule.contents)
    capsule.attach(manager, step, traps)
    for number in (8, 7):
        again = capsule.run(number)
        assert again.same_bits and not again.other_bits


def test_a_program_that_was_trained_before_it_is_recorded(tmp_path: Path):
    program = Sum()
    step = program.adding(lambda x: x)
    manager = rx.train.CheckpointManager(program.checkpoint, tmp_path / "c")
    manager.save()
    step(1.0)
    recorder = rx.debug.Recorder(manager, step, tmp_path / "r")
    with pytest.raises(ValueError, match="there is none so far"):
        recorder.save()
    with recorder:
        step(2.0)
        manager.save()
        program.w.assign(7.0)  # after it was saved
        step(3.0)
        capsule = rx.debug.load(recorder.save())
    with pytest.raises(ValueError, match="the last one is 2"):
        recorder.save(3)
    capsule.attach(manager, step)
    assert capsule.run().same_bits
    capsule = rx.debug.load(recorder.save(1))
    capsule.attach(manager, step)
    assert capsule.run().same_bits


def test_a_step_that_fails_is_no_step(tmp_path: Path):
    program = Sum()

    def value_of(x: Any) -> Any:
        if x.shape == (3,):
            raise KeyError("no such row")
        return jnp.sum(x)

    step = program.adding(value_of)

    def run() -> None:
        step(jnp.ones(2))
        with pytest.raises(KeyError, match="no such row"):
            step(jnp.ones(3))
        step(jnp.ones(4))

    replayed(tmp_path, program.checkpoint, step, run)


def test_several_steps_in_one_call_are_several(tmp_path: Path):
    program = Sum()
    step = program.adding(jnp.sum)
    data = iter(rx.data.Dataset.from_tensor_slices(np.arange(12, dtype=np.float32)).batch(2))

    def run() -> None:
        step.steps(data, 3)
        step.steps(data, 2)

    assert replayed(tmp_path, program.checkpoint, step, run).step == 5


def test_strategy_run_of_a_recorded_function(tmp_path: Path):
    strategy = mirrored(2)
    with strategy.scope():
        w = rx.Variable(0.0, aggregation="SUM")

    @rx.function
    def step(x: Any) -> Any:
        w.assign_add(x)
        return w.read_value()

    with rx.debug.Recorder(rx.train.Checkpoint(w=w), step, tmp_path / "r") as recorder:
        for number in range(2):
            parts = [jnp.float32(number), jnp.float32(5)]
            strategy.run(step, args=(rx.distribute.PerReplica(parts),))
        capsule = rx.debug.load(recorder.save())
    capsule.attach(rx.train.Checkpoint(w=w), step)
    assert capsule.run().same_bits


def test_what_goes_wrong_after_a_trap_says_so(tmp_path: Path):
    program = Sum()
    step = program.adding(jnp.log)
    traps = rx.debug.Traps(finite=True)
    with pytest.raises(FloatingPointError, match="the user's own") as caught:
        with rx.debug.Recorder(program.checkpoint, step, tmp_path / "r", traps=traps):
            if np.isnan(step(-1.0)):
                raise FloatingPointError("the user's own")
    assert "Step 1: variable 'w:0'" in caught.value.__notes__[0]
    assert "replicax replay" in caught.value.__notes__[0]


TRAPPED_AT_ITS_END = """
import sys
import jax.numpy as jnp
import replicax as rx

w = rx.Variable(0.5)
step = rx.function(lambda x: w.assign(jnp.log(x)))
recorder = rx.debug.Recorder(
    rx.train.Checkpoint(w=w), step, "recording", traps=rx.debug.Traps(finite=True)
)
step(-1.0)
sys.stdout = sys.stderr = None
"""


def test_a_trap_at_the_end_fails_a_program_with_closed_output(tmp_path: Path):
    (tmp_path / "program.py").write_text(TRAPPED_AT_ITS_END)
    run_python(["program.py"], tmp_path, status=1, warm=True)


def test_a_program_that_goes_on_makes_few_capsules(tmp_path: Path):
    program = Sum()
    step = program.adding(jnp.log)
    traps = rx.debug.Traps(finite=True)
    with pytest.warns(UserWarning) as warned:
        with rx.debug.Recorder(
            program.checkpoint, step, tmp_path / "r", traps=traps, on_trap="continue"
        ):
            for _ in range(13):
                step(-1.0)
    assert len(list((tmp_path / "r" / "capsules").iterdir())) == 10
    assert "Step 13" in str(warned[-1].message)
    assert "there are 10 of this program" in str(warned[-1].message)


def test_one_recorder_at_a_time(tmp_path: Path):
    program = Sum()
    step = program.adding(lambda x: x)
    first = rx.debug.Recorder(program.checkpoint, step, tmp_path / "a")
    with pytest.raises(rx.errors.FailedPreconditionError, match="recorded already, in .*/a"):
        rx.debug.Recorder(program.checkpoint, step, tmp_path / "b")
    with first:
        step(1.0)
    with pytest.raises(RuntimeError, match="make another one"), first:
        pass
    with rx.debug.Recorder(program.checkpoint, step, tmp_path / "b"):
        step(2.0)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"bound": "x"}, ValueError),
        ({"copies_every": 1.5}, ValueError),
        ({"copies_every": True}, ValueError),
        ({"slower_than": float("nan")}, ValueError),
        ({"finite": "yes"}, TypeError),
    ],
)
def test_traps_that_are_none(options: Any, error: type[Exception]):
    with pytest.raises(error, match=f"Traps: `{next(iter(options))}` is"):
        rx.debug.Traps(**options)


def test_a_recording_that_was_moved_with_its_checkpoints(tmp_path: Path):
    program = Sum()
    step = program.adding(jnp.sin)
    manager = rx.train.CheckpointManager(program.checkpoint, tmp_path / "here" / "checkpoints")
    with rx.debug.Recorder(manager, step):
        step(1.0)
        manager.save()
        step(2.0)
    manager.wait()
    (tmp_path / "here").rename(tmp_path / "there")
    recording = tmp_path / "there" / "checkpoints" / "recording"
    capsule = rx.debug.load(write_capsule(str(recording), str(tmp_path / "capsule"), 2))
    capsule.attach(manager, step)
    assert capsule.run().same_bits and list(capsule.steps) == [2]
    assert str(tmp_path) not in (tmp_path / "capsule/worker-0/steps.jsonl").read_text()
    with pytest.raises(rx.errors.DataLossError, match="Step 7 is not in the recording"):
        write_capsule(str(recording), str(tmp_path / "other"), 7)


def test_a_disk_that_is_full_ends_the_recording_and_not_the_traps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    program = Sum()
    step = program.adding(lambda x: jnp.sum(jnp.log(x)))
    traps = rx.debug.Traps(finite=True)
    save, left = np.save, [2]

    def save_on_a_small_disk(*args: Any, **kwargs: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        save(*args, **kwargs)

    with (
        pytest.warns(UserWarning, match="Recording has ended: .*No space left") as warned,
        pytest.raises(rx.errors.TrappedStepError, match="Step 4: .*No capsule could be made"),
        rx.debug.Recorder(program.checkpoint, step, tmp_path / "r", traps=traps) as recorder,
    ):
        for number in range(8):
            if number == 3:
                recorder._drain()
                monkeypatch.setattr(np, "save", save_on_a_small_disk)
                left[0] = 0
            step(jnp.full(1000, 5 - 2.0 * number))
    assert Path(warned[0].filename).name == "test_recorder_of_odd_programs.py"
    monkeypatch.undo()
    capsule = rx.debug.load(recorder.save(3))
    capsule.attach(program.checkpoint, step)
    assert capsule.run().same_bits


def test_a_recording_that_ends_anywhere(tmp_path: Path):
    """As a program leaves it that is killed."""
    program = Sum()
    step = program.adding(jnp.sum)
    data = iter(rx.data.Dataset.from_tensor_slices(np.arange(8, dtype=np.float32)).batch(2))
    with rx.debug.Recorder(program.checkpoint, step, tmp_path / "r") as recorder:
        losses = [step(next(data)) for _ in range(3)]
        recorder._drain()
        shutil.copytree(tmp_path / "r", tmp_path / "killed")
    (segment,) = (tmp_path / "killed" / "worker-0").glob("segment-*.jsonl")
    whole = segment.read_bytes()
    lines = whole.splitlines(keepends=True)
    for size in range(len(whole), len(lines[0]), -7):
        segment.write_bytes(whole[:size])
        last = last_step_of(str(tmp_path / "killed"))
        if not last:
            continue
        path = tmp_path / f"capsule-{size}"
        capsule = rx.debug.load(write_capsule(str(tmp_path / "killed"), str(path), last))
        assert capsule.step == last
        found = [capsule.recorded_results(number) for number in capsule.steps]
        assert [each for each in found if each] == [[each] for each in losses[: len(found)]][
            : len(list(filter(None, found)))
        ]
    segment.unlink()
    os.mkfifo(segment)
    with pytest.raises(rx.errors.DataLossError, match="no checkpoint from before it"):
        write_capsule(str(tmp_path / "killed"), str(tmp_path / "pipe"), 1)


def test_what_is_skipped_has_left_no_trace(tmp_path: Path):
    """Optimizers, generators, metrics: all are as in a program that never saw the bad batch."""

    def trained(folder: Path, batches: list[Any], **options: Any) -> list[Any]:
        strategy = mirrored(2)
        with strategy.scope():
            w = rx.Variable(np.ones((2, 1), np.float32))
            generator = rx.random.Generator.from_seed(1)
            mean = rx.metrics.Mean()
            schedule = optax.exponential_decay(0.1, 1, 0.9)
            optimizer = rx.Optimizer(optax.adam(schedule))

        def on_replica(x: Any) -> Any:
            noise = generator.normal((2, 1))

            def loss_fn() -> Any:
                return rx.nn.share_of_mean((jnp.log(x) @ (w + noise))[:, 0] ** 2)

            loss, gradients = rx.value_and_grad(loss_fn, [w])
            optimizer.apply_gradients(zip(gradients, [w], strict=True))
            mean.update_state(loss)
            return loss

        @rx.function
        def step(x: Any) -> Any:
            return strategy.reduce("SUM", strategy.run(on_replica, args=(x,)), axis=None)

        state = rx.train.Checkpoint(w=w, optimizer=optimizer, generator=generator, mean=mean)
        traps = rx.debug.Traps(finite=True)
        losses: list[Any] = []
        with rx.debug.Recorder(state, step, folder, traps=traps, **options):
            for x in batches:
                losses.append(
                    step(rx.distribute.PerReplica([jnp.asarray(x[:2]), jnp.asarray(x[2:])]))
                )
        losses = [each for each in losses if np.isfinite(each)]
        return [*losses, *(np.asarray(each.numpy()) for each in variables_in(state))]

    random = np.random.default_rng(0)
    good = [random.uniform(1, 2, (4, 2)).astype(np.float32) for _ in range(4)]
    bad = good[0].copy()
    bad[3, 0] = -1.0  # of replica 1 alone
    with pytest.warns(UserWarning, match="Step 3: .*discarded"):
        skipped = trained(tmp_path / "a", [*good[:2], bad, *good[2:]], on_trap="skip")
    # The same program, which has the same traps and no bad batch.
    expected = trained(tmp_path / "b", good, on_trap="skip")
    assert len(skipped) == len(expected) > 8
    for mine, theirs in zip(skipped, expected, strict=True):
        assert np.asarray(mine).tobytes() == np.asarray(theirs).tobytes()


def test_gradients_that_a_module_of_flax_gets(tmp_path: Path):
    nnx = pytest.importorskip("flax.nnx")
    strategy = mirrored(2)
    with strategy.scope():
        model = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
        optimizer = nnx.Optimizer(model, optax.sgd(1e-2), wrt=nnx.Param)

    def on_replica(x: Any) -> Any:
        loss, gradients = nnx.value_and_grad(
            lambda model: rx.nn.share_of_mean(jnp.sum(model(x) ** 2, axis=1))
        )(model)
        optimizer.update(model, gradients)
        return loss

    @rx.function
    def step(x: Any) -> Any:
        return strategy.reduce("SUM", strategy.run(on_replica, args=(x,)), axis=None)

    rows = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
    rows[11, 1] = np.inf
    data = strategy.experimental_distribute_dataset(
        rx.data.Dataset.from_tensor_slices(rows).batch(4)
    )
    checkpoint = rx.train.Checkpoint(model=model, optimizer=optimizer)
    traps = rx.debug.Traps(bits=True)
    words = r"the gradient of bias:0 on replica 1 \(given to the optimizer at test_recorder_of_odd"
    with pytest.raises(rx.errors.TrappedStepError, match=words) as caught:
        with rx.debug.Recorder(checkpoint, step, tmp_path, traps=traps):
            for x in data:
                step(x)
    is_there = iter(data)
    assert caught.value.capsule is not None
    capsule = rx.debug.load(caught.value.capsule)
    capsule.attach(checkpoint, step, traps)
    again = capsule.run(2)
    assert again.same_bits and not again.other_bits
    assert [each.shape for each in capsule.gradients["kernel:0"]] == [(3, 2)] * 2
    del is_there


def test_what_all_replicas_return_on_another_number_of_them():
    found = [[in_line(np.array(2, np.float32))] * 2, [in_line(np.array(3, np.float32))]]
    steps = [Step(1, results=found)]
    one = compared(1, [jnp.float32(2), jnp.float32(3)], {}, steps, same_layout=False)
    assert one.same_bits and one.agrees
    other = compared(1, [jnp.float32(2.5), jnp.float32(3)], {}, steps, same_layout=False)
    assert other.same_bits is False and not other.agrees
    differing = [[in_line(np.array(1, np.float32)), in_line(np.array(2, np.float32))]]
    steps = [Step(1, results=differing)]
    assert compared(1, jnp.float32(2), {}, steps, same_layout=False).same_bits is None
    assert compared(1, None, {}, [Step(1, results=[])]).same_bits is None, "nothing is no proof"


def test_replicas_of_several_devices(tmp_path: Path):
    strategy = rx.distribute.MirroredStrategy(cpus(4), logical_devices_per_replica=2)
    with strategy.scope():
        w = rx.Variable(jnp.zeros(4), aggregation="SUM")

    @rx.function
    def step(x: Any) -> Any:
        def on_replica(x: Any) -> Any:
            w.assign_add(strategy.experimental_split_to_logical_devices(x, [2]))
            return jnp.sum(w.read_value())

        return strategy.reduce("SUM", strategy.run(on_replica, args=(x,)), axis=None)

    x = rx.distribute.PerReplica([jnp.arange(4.0), jnp.ones(4)])
    capsule = replayed(tmp_path, rx.train.Checkpoint(w=w), step, lambda: [step(x), step(x)])
    layout = capsule._recorded.layout
    assert (layout["replicas"], layout["devices"]) == (2, 4), "those that a replay needs"


def test_random_keys(tmp_path: Path):
    program = Sum()
    step = program.adding(lambda key, old: jax.random.normal(key) + jax.random.normal(old))
    keys = [jax.random.key(0)]

    def run() -> None:
        for _ in range(3):
            keys[0], one = jax.random.split(keys[0])
            step(one, jax.random.PRNGKey(3))

    replayed(tmp_path, program.checkpoint, step, run)
