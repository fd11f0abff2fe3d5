"""`rx.summary`: what is in the file, from which replica and for which kinds of values."""

import io
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import replicax as rx
from replicax._src.watching._summary_writer import tensorboardx
from tests.replicas import context
from tests.scripts import run_python
from tests.under_test import Executor

from .event_files import events_in, scalars_in


@pytest.fixture
def writer(tmp_path: Path):
    writer = rx.summary.create_file_writer(tmp_path / "logs")
    yield writer
    writer.close()


# What is written.


def test_scalars_of_all_kinds(writer: Any, tmp_path: Path):
    metric, variable = rx.metrics.Mean(), rx.Variable(7.0)
    metric.update_state([1.0, 2.0])
    values = {
        "a number": 0.5,
        "an integer": 3,
        "numpy": np.float64(1.25),
        "one/in brackets": np.array([2.5]),
        "jax": jnp.float32(4),
        "bfloat16": jnp.bfloat16(5),
        "mirrored": rx.distribute.Mirrored([jnp.float32(6), jnp.float32(6)]),
        "variable": variable,
        "metric": metric,
        "nan": float("inf"),
    }
    with writer.as_default(step=12):
        for name, value in values.items():
            assert rx.summary.scalar(name, value) is True
        variable.assign(8.0)  # what was written before stays as it was
        metric.reset_state()
    writer.close()
    expected = [0.5, 3, 1.25, 2.5, 4, 5, 6, 7, 1.5, float("inf")]
    assert scalars_in(tmp_path) == [(name, 12, value) for name, value in zip(values, expected)]


def test_per_replica_scalars_are_curves_of_their_own(writer: Any, tmp_path: Path):
    with writer.as_default():
        rx.summary.scalar("loss", rx.distribute.PerReplica([1.0, 2.0]), step=3)
    writer.close()
    assert scalars_in(tmp_path) == [("loss/replica_0", 3, 1.0), ("loss/replica_1", 3, 2.0)]


def test_histograms(writer: Any, tmp_path: Path):
    values = np.arange(101, dtype=np.float32)
    with writer.as_default(step=1):
        assert rx.summary.histogram("numbers", values.reshape(1, 101), description="all of them")
        rx.summary.histogram("same", jnp.full((4, 4), 2.0), buckets=3)
        rx.summary.histogram("holes", jnp.asarray([0.0, 1.0, jnp.nan, jnp.inf]), buckets=2)
        rx.summary.histogram("shares", rx.distribute.PerReplica([values[:50], values[50:]]))
    writer.close()
    numbers, same, holes, shares = events_in(tmp_path)
    assert numbers.description == "all of them" and numbers.step == 1
    assert (numbers.value.num, numbers.value.min, numbers.value.max) == (101, 0, 100)
    assert numbers.value.sum == values.sum() and sum(numbers.value.bucket) == 101
    assert len(numbers.value.bucket_limit) == 31  # 30, and the left end of the first
    assert sum(same.value.bucket) == 16
    assert (holes.value.num, holes.value.max) == (2, 1)
    assert list(shares.value.bucket) == list(numbers.value.bucket)


def test_nothing_finite_is_a_warning_and_no_error(writer: Any, tmp_path: Path):
    with (
        writer.as_default(step=1),
        pytest.warns(UserWarning, match="none of the 2 values is finite"),
    ):
        rx.summary.histogram("gone", np.array([np.nan, np.inf]))
    writer.close()
    assert events_in(tmp_path) == []


def test_images(writer: Any, tmp_path: Path):
    random = np.random.default_rng(0)
    grey, colour = random.random((5, 4, 6, 1)), random.integers(0, 256, (1, 4, 6, 3), np.uint8)
    grey[0, 0, 0] = 7.0  # too bright, and not dark again
    with writer.as_default(step=2):
        assert rx.summary.image("grey", jnp.asarray(grey, jnp.float32))
        rx.summary.image("colour", colour)
        rx.summary.image("shares", rx.distribute.PerReplica([colour, colour]), max_outputs=5)
    writer.close()
    events = events_in(tmp_path)
    assert [each.name for each in events] == [
        *("grey/0", "grey/1", "grey/2", "colour", "shares/0", "shares/1")
    ]

    def pixels(event: Any) -> np.ndarray:
        assert (event.value.height, event.value.width) == (4, 6)
        return np.asarray(Image.open(io.BytesIO(event.value.encoded_image_string)))

    np.testing.assert_array_equal(pixels(events[3]), colour[0])
    found = pixels(events[0])
    found = found if found.ndim == 2 else found[..., 0]
    np.testing.assert_allclose(found / 255, np.clip(grey[0, ..., 0], 0, 1), atol=0.51 / 255)


def test_a_number_with_a_description_is_a_tensor_of_the_plugin(writer: Any, tmp_path: Path):
    with writer.as_default(step=4):
        rx.summary.scalar("loss", 0.5, description="of a *batch*")
    writer.close()
    assert events_in(tmp_path) == [("loss", 4, 0.5, "of a *batch*")]


def test_text(writer: Any, tmp_path: Path):
    with writer.as_default(step=0):
        assert rx.summary.text("notes", "*grün*")
    writer.close()
    (event,) = events_in(tmp_path)
    assert (event.name, event.value) == ("notes", "*grün*")


# When it is written.


def test_steps(writer: Any, tmp_path: Path):
    counter = rx.Variable(10)
    with writer.as_default(step=counter):
        rx.summary.scalar("x", 1.0)
        counter.assign_add(1)
        rx.summary.scalar("x", 2.0)
        rx.summary.scalar("x", 3.0, step=jnp.int32(5))
        with writer.as_default():
            rx.summary.scalar("x", 4.0)
        with writer.as_default(step=6):
            rx.summary.scalar("x", 5.0)
    writer.close()
    assert [step for _, step, _ in scalars_in(tmp_path)] == [10, 11, 5, 11, 6]


def test_default_writers_nest_and_end(tmp_path: Path):
    outer, inner = (rx.summary.create_file_writer(tmp_path / name) for name in "ab")
    assert not rx.summary.should_record_summaries()
    assert rx.summary.scalar("x", 0.0) is False  # without a writer, and so without a step
    with outer.as_default(step=1):
        with inner.as_default(step=2):
            rx.summary.scalar("x", 1.0)
        rx.summary.scalar("x", 2.0)
    assert not rx.summary.should_record_summaries()
    outer.close()
    inner.close()
    assert scalars_in(tmp_path / "a") == [("x", 1, 2.0)]
    assert scalars_in(tmp_path / "b") == [("x", 2, 1.0)]


def test_record_if(writer: Any, tmp_path: Path):
    step = 0
    with writer.as_default(), rx.summary.record_if(lambda: step % 2 == 0):
        for step in range(4):
            assert rx.summary.scalar("x", 1.0, step=step) is (step % 2 == 0)
        with rx.summary.record_if(False):
            assert not rx.summary.should_record_summaries()
    writer.close()
    assert [step for _, step, _ in scalars_in(tmp_path)] == [0, 2]


def test_numbers_are_waited_for_by_flush_and_when_there_are_many(tmp_path: Path):
    read: list[str] = []
    writer = rx.summary.create_file_writer(tmp_path, max_queue=2)
    with writer.as_default(step=0):
        for name in "abc":
            writer.add(lambda name=name: read.append(name) or _nothing(), lambda: 0)
            assert read == ([] if name != "c" else ["a", "b", "c"])
        writer.add(lambda: read.append("d") or _nothing(), lambda: 0)
        assert len(read) == 3
        rx.summary.flush()
        assert len(read) == 4
    writer.close()


def _nothing() -> Any:
    return tensorboardx().summary.scalar("x", 0.0)


def test_flush_brings_everything_onto_the_disk(writer: Any, tmp_path: Path):
    for step in range(3):
        with writer.as_default(step=step):
            rx.summary.scalar("x", jnp.float32(step))
            rx.summary.flush()
        assert [value for _, _, value in scalars_in(tmp_path)] == list(range(step + 1))
    rx.summary.flush(writer)
    rx.summary.flush()  # without a default writer: nothing to do


def test_two_writers_of_one_folder_do_not_overwrite_each_other(tmp_path: Path):
    for value in (1.0, 2.0):
        writer = rx.summary.create_file_writer(tmp_path)
        with writer.as_default(step=0):
            rx.summary.scalar("x", value)
        writer.close()
        writer.close()
    assert [value for _, _, value in scalars_in(tmp_path)] == [1.0, 2.0]


def test_a_writer_that_was_not_closed_is_closed_at_the_end_of_the_program(tmp_path: Path):
    program = (
        "import jax.numpy as jnp, replicax as rx\n"
        "rx.summary.create_file_writer('logs').set_as_default(step=3)\n"
        "rx.summary.scalar('x', jnp.float32(2))\n"
    )
    run_python(["-c", program], tmp_path, warm=True)
    assert scalars_in(tmp_path) == [("x", 3, 2.0)]


def test_a_writer_without_summaries_makes_no_folder(tmp_path: Path):
    rx.summary.create_file_writer(tmp_path / "logs").close()
    noop = rx.summary.create_noop_writer()
    with noop.as_default(step=0):
        assert rx.summary.scalar("x", 1.0) is False
    noop.close()
    assert list(tmp_path.iterdir()) == []


# Replicas and compiled functions.


def test_of_eager_replicas_the_first_writes(strategy: Any, writer: Any, tmp_path: Path):
    def replica_fn() -> None:
        context: Any = rx.distribute.get_replica_context()
        number = context.replica_id_in_sync_group
        written = rx.summary.scalar("number", jnp.float32(number))
        assert written is (number == 0)

    with writer.as_default(step=0):
        strategy.run(replica_fn)
    writer.close()
    assert scalars_in(tmp_path) == [("number", 0, 0.0)]


def test_what_a_step_returns_is_written(
    strategy: Any, executor: Executor, writer: Any, tmp_path: Path
):
    x = strategy.experimental_distribute_values_from_function(lambda _: jnp.float32(2))
    with writer.as_default():
        for step in range(2):
            result = executor.run(strategy, lambda x: x * 3, (x,), {})
            rx.summary.scalar("loss", strategy.reduce("MEAN", result, axis=None), step)
    writer.close()
    assert scalars_in(tmp_path) == [("loss", 0, 6.0), ("loss", 1, 6.0)]


@pytest.mark.parametrize("kind", ["scalar", "histogram", "image", "text"])
def test_compiled_functions_write_when_they_run(kind: str, writer: Any, tmp_path: Path):
    data = "text" if kind == "text" else jnp.ones((1, 2, 2, 1) if kind == "image" else ())
    made: Any = rx.Variable(data) if kind == "scalar" else data
    step = rx.Variable(0)

    @rx.function
    def compiled() -> None:
        assert getattr(rx.summary, kind)("x", made, step=step)
        step.assign_add(1)

    with writer.as_default():
        for _ in range(3):
            compiled()
    writer.flush()
    if kind in ("scalar", "text"):
        value = "text" if kind == "text" else 1.0
        assert sorted(scalars_in(tmp_path)) == [("x", n, value) for n in range(3)]
    writer.close()


def test_of_compiled_replicas_the_first_writes(strategy: Any, writer: Any, tmp_path: Path):
    with strategy.scope():
        step = rx.Variable(0, aggregation=rx.VariableAggregation.ONLY_FIRST_REPLICA)
        w = rx.Variable(2.0)

    def replica_fn(x: Any) -> Any:
        def loss() -> Any:
            value = w * x
            rx.summary.scalar("loss", value)
            return value

        context: Any = rx.distribute.get_replica_context()
        value, _ = rx.value_and_grad(loss, [w])
        rx.summary.scalar("number", jnp.float32(context.replica_id_in_sync_group))
        return value

    @rx.function
    def train_step(x: Any) -> None:
        losses = strategy.run(replica_fn, args=(x,))
        rx.summary.scalar("total", strategy.reduce("MEAN", losses, axis=None))
        with rx.summary.record_if(lambda: step.read_value() == 0):
            rx.summary.scalar("first", 7.0)
        step.assign_add(1)

    x = strategy.experimental_distribute_values_from_function(lambda _: jnp.float32(3))
    with writer.as_default(step=step):
        train_step(x)
        train_step(x)
    writer.close()
    expected = [(name, n, v) for name, v in (("loss", 6.0), ("number", 0.0)) for n in range(2)]
    assert sorted(scalars_in(tmp_path)) == sorted(
        [("first", 0, 7.0), *expected, ("total", 0, 6.0), ("total", 1, 6.0)]
    )


def test_values_for_a_gradient_are_written(writer: Any, tmp_path: Path):
    def loss(x: Any) -> Any:
        rx.summary.scalar("loss", x, step=4)
        return x

    with writer.as_default():
        jax.grad(loss)(1.5)
    writer.close()
    assert scalars_in(tmp_path) == [("loss", 4, 1.5)]


def test_a_program_whose_summary_cannot_be_written_goes_on(tmp_path: Path, capfd: Any):
    folder = tmp_path / "logs"
    writer, step = rx.summary.create_file_writer(folder), rx.Variable(0)

    @rx.function
    def compiled() -> None:
        step.assign_add(1)
        rx.summary.scalar("step", step, step=step)

    folder.write_text("in the way")
    with writer.as_default():
        for _ in range(2):
            compiled()
    with pytest.raises(FileExistsError):
        writer.flush()
    assert int(step.numpy()) == 2  # what it updates in place is not lost
    assert "rx.summary.scalar('step') was not written" in capfd.readouterr().err
    writer.close()
    compiled()
    jax.effects_barrier()
    assert int(step.numpy()) == 3
    assert "is closed" in capfd.readouterr().err


def test_wrong_uses_in_compiled_functions_say_what_to_write(writer: Any):
    strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with writer.as_default(step=3):
        with pytest.raises(ValueError, match=r"would write the step 3 at every call.*iterations"):
            rx.function(lambda: rx.summary.scalar("x", 1.0) and None)()

    def of_each(x: Any) -> None:
        numbers = strategy.run(lambda x: x * context().replica_id_in_sync_group, args=(x,))
        rx.summary.scalar("x", numbers, step=0)

    with writer.as_default():
        with pytest.raises(ValueError, match=r"one number is needed.*jnp.mean"):
            rx.function(lambda: rx.summary.scalar("x", jnp.zeros(3), step=0) and None)()
        with pytest.raises(RuntimeError, match=r"value of each replica.*strategy.reduce first"):
            rx.function(of_each)(jnp.float32(2))


# Errors.


def test_wrong_uses_say_what_to_write(writer: Any, tmp_path: Path):
    with writer.as_default():
        with pytest.raises(ValueError, match=r"has no step.*as_default\(step=step\)"):
            rx.summary.scalar("x", 1.0)
    with writer.as_default(step=0):
        with pytest.raises(ValueError, match=r"shape \(3,\).*jnp.mean.*histogram"):
            rx.summary.scalar("x", jnp.zeros(3))
        with pytest.raises(ValueError, match=r"got \(4, 4\).*picture\[None, :, :, None\]"):
            rx.summary.image("x", np.zeros((4, 4)))
        with pytest.raises(TypeError, match="uint8.*int32"):
            rx.summary.image("x", np.zeros((1, 4, 4, 1), np.int32))
        with pytest.raises(TypeError, match="takes a str; got float"):
            rx.summary.text("x", 1.0)  # type: ignore[arg-type]
        for wrong in (None, "high", 1j, 10**400):
            with pytest.raises(TypeError, match=r"scalar\('x'\) takes a number; got "):
                rx.summary.scalar("x", wrong)
        with pytest.raises(TypeError, match="`step` must be a whole number; got 'first'"):
            rx.summary.scalar("x", 1.0, step="first")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="`name` must be a text"):
            rx.summary.scalar("", 1.0)
        with pytest.raises(ValueError, match="`buckets` must be at least 1"):
            rx.summary.histogram("x", [1.0], buckets=0)
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(NotADirectoryError, match="is a file"):
            rx.summary.create_file_writer(path)
    with pytest.raises(ValueError, match="`logdir` must be a folder"):
        rx.summary.create_file_writer("")
    for wrong in (-1, "many"):
        with pytest.raises(ValueError, match="`max_queue` must be a whole number"):
            rx.summary.create_file_writer(tmp_path, max_queue=wrong)  # type: ignore[arg-type]


def test_a_closed_writer_says_so(writer: Any):
    writer.close()
    with pytest.raises(RuntimeError, match="is closed.*create_file_writer"):
        with writer.as_default():
            pass
    writer.flush()  # it is all there


def test_a_summary_that_fails_does_not_take_others_with_it(writer: Any, tmp_path: Path):
    gone = jnp.float32(1)
    with writer.as_default(step=0):
        for name, value in {"before": 1.0, "gone": gone, "after": 2.0}.items():
            rx.summary.scalar(name, value)
    gone.delete()
    with pytest.raises(RuntimeError, match="'gone'.*donated"):
        writer.flush()
    writer.flush()
    assert scalars_in(tmp_path / "logs") == [("before", 0, 1.0), ("after", 0, 2.0)]


def test_a_step_that_a_device_computes_is_not_waited_for(
    writer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    step, read = rx.Variable(3), []
    array = type(jnp.zeros(()))
    convert = array.__array__
    monkeypatch.setattr(
        array, "__array__", lambda self, *a, **k: read.append(1) or convert(self, *a, **k)
    )
    with writer.as_default(step=step):
        rx.summary.scalar("x", 1.0)
        assert not read
        step.assign(4)  # too late for the first
        rx.summary.scalar("x", 2.0)
    writer.flush()
    assert scalars_in(tmp_path / "logs") == [("x", 3, 1.0), ("x", 4, 2.0)]


def test_a_donated_array_says_so(writer: Any):
    value = jnp.float32(1)
    with writer.as_default(step=0):
        rx.summary.scalar("x", value)
    value.delete()
    with pytest.raises(RuntimeError, match=r"donated.*float\(value\)"):
        writer.flush()


def test_without_tensorboardx_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(ImportError, match=r'pip install "replicax\[tensorboard\]"'):
        rx.summary.create_file_writer(tmp_path)


def test_the_names_are_those_of_tensorflow():
    """And of those that take arguments, the arguments too, in their order."""
    import inspect

    signatures = {
        "scalar": ["name", "data", "step", "description"],
        "histogram": ["name", "data", "step", "buckets", "description"],
        "image": ["name", "data", "step", "max_outputs", "description"],
        "text": ["name", "data", "step", "description"],
        "flush": ["writer", "name"],
        "should_record_summaries": [],
        "create_noop_writer": [],
        "create_file_writer": ["logdir", "max_queue", "flush_millis", "filename_suffix", "name"],
    }
    for name, parameters in signatures.items():
        assert list(inspect.signature(getattr(rx.summary, name)).parameters) == parameters


def test_the_file_is_where_the_program_was_when_the_writer_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    monkeypatch.chdir(first)
    writer = rx.summary.create_file_writer("logs")
    monkeypatch.chdir(second)
    with writer.as_default():
        rx.summary.scalar("loss", 1.0, step=1)
    writer.close()
    assert len(list((first / "logs").iterdir())) == 1 and not list(second.iterdir())
