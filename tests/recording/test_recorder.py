"""Steps are recorded, and run again with the same bits; what is wrong in them is found."""

import json
import os
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from replicax._src.checkpoints import _saving, is_as_on_disk
from replicax._src.recording import _recorder
from replicax._src.recording._ring import Ring
from tests.recording.programs import BATCH, Program


def test_a_step_again_has_the_same_bits(tmp_path: Path):
    program = Program(tmp_path)
    with program.recorder as recorder:
        losses = program.train()
        path = recorder.save(11)
    again = Program(tmp_path / "again")
    again.recorder.close()
    iter(again.data)  # the data that it reads from
    iterator = iter(again.data)
    capsule = rx.debug.load(path)
    assert (capsule.step, list(capsule.steps), capsule.trap) == (11, [9, 10, 11], None)
    assert capsule.recorded_results(9) == [losses[8]]
    capsule.attach(again.manager, again.step)
    replayed = capsule.run()
    assert replayed.same_bits and replayed.largest_difference == 0
    assert replayed.results == [[losses[10]]]
    (x, _), _ = capsule.inputs
    assert [part.shape for part in x.values] == [(4, 2)] * 2
    first, last = capsule.before["w:0"], capsule.after["w:0"]
    assert len(first) == 2 and np.array_equal(first[0], first[1])
    assert not np.array_equal(first[0], last[0])
    assert [each.shape for each in capsule.gradients["w:0"]] == [(2, 1)] * 2
    of_first, of_second = capsule.gradients["w:0"]
    assert not np.array_equal(of_first, of_second), "each replica has its own"
    assert capsule.run(9).same_bits, "and backwards"
    del iterator


def test_what_is_written_is_for_its_owner_alone(tmp_path: Path):
    program = Program(tmp_path)
    with program.recorder as recorder:
        program.train(epochs=1)
        recorder.save()
    for path in (tmp_path / "recording").rglob("*"):
        mode = stat.S_IMODE(path.lstat().st_mode)
        if "checkpoint" in path.parts or "start-0" in path.parts:
            continue  # in a folder that nobody else can enter
        assert mode == (0o700 if path.is_dir() else 0o600), path
    capsule = tmp_path / "recording" / "capsules" / "step-6"
    assert sorted(each.name for each in capsule.iterdir()) == [
        "capsule.json",
        "checkpoint",
        "worker-0",
    ]
    assert stat.S_IMODE((capsule / "checkpoint").lstat().st_mode) == 0o700
    size = (capsule / "worker-0" / "steps.jsonl").stat().st_size
    assert size < 1000 * 2, "a few hundred bytes for each step"


def test_a_folder_that_others_can_read_is_refused(tmp_path: Path):
    (tmp_path / "recording").mkdir(mode=0o755)
    with pytest.raises(PermissionError, match="can be read by others.*chmod 700"):
        Program(tmp_path)


@pytest.mark.parametrize("replicas", [1, 2])
def test_arguments_that_come_from_elsewhere_are_kept(tmp_path: Path, replicas: int):
    strategy = rx.distribute.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])
    with strategy.scope():
        w = rx.Variable(jnp.zeros(300), aggregation=rx.VariableAggregation.SUM)

    @rx.function
    def step(x: Any, scale: Any, *, key: Any, name: str, factor: float) -> Any:
        def on_replica(x: Any) -> Any:
            w.assign_add(x * scale * factor + jax.random.uniform(key))
            return jnp.sum(x)

        return strategy.reduce("SUM", strategy.run(on_replica, args=(x,)), axis=None)

    checkpoint = rx.train.Checkpoint(w=w)
    with rx.debug.Recorder(checkpoint, step, tmp_path / "recording") as recorder:
        for number in range(3):
            parts = [jnp.arange(300.0) + number + replica for replica in range(replicas)]
            x = rx.distribute.PerReplica(parts) if replicas > 1 else parts[0]
            key = jax.random.key(number)
            step(x, np.float32(number), key=key, name="a", factor=0.1)
        last = w.numpy()
        path = recorder.save()
    capsule = rx.debug.load(path)
    capsule.attach(checkpoint, step)
    assert capsule.run().same_bits
    assert np.array_equal(w.numpy(), last)
    assert capsule.inputs[1]["name"] == "a" and capsule.inputs[1]["factor"] == 0.1


def test_rows_can_be_left_out(tmp_path: Path):
    w = rx.Variable(jnp.zeros(3))
    step = rx.function(lambda x: w.assign_add(x))
    checkpoint = rx.train.Checkpoint(w=w)
    with rx.debug.Recorder(checkpoint, step, tmp_path / "r", rows=False) as recorder:
        step(jnp.ones(3))
        path = recorder.save()
    capsule = rx.debug.load(path)
    capsule.attach(checkpoint, step)
    with pytest.raises(rx.errors.DataLossError, match="rows are not kept.*iterator of rx.data"):
        capsule.run()


def test_past_the_limit_there_is_a_warning(tmp_path: Path):
    w = rx.Variable(jnp.zeros(1000))
    step = rx.function(lambda x: w.assign_add(x))
    with pytest.warns(UserWarning, match="reached its limit"):
        with rx.debug.Recorder(rx.train.Checkpoint(w=w), step, tmp_path / "r", limit=5000):
            for _ in range(3):
                step(jnp.ones(1000))


def test_a_trap_names_step_replica_and_gradient_and_ends_the_program(tmp_path: Path):
    traps = rx.debug.Traps(finite=True)
    program = Program(tmp_path, bad_row=BATCH * 2 + 5, traps=traps)
    with pytest.raises(rx.errors.TrappedStepError) as caught, program.recorder:
        program.train()
    assert caught.value.step == 3
    text = str(caught.value)
    assert "the gradient of w:0 on replica 1 (given to the optimizer at programs.py:" in text
    assert caught.value.capsule is not None and "replicax replay" in text
    assert "replica 1" in str(rx.debug.load(caught.value.capsule).trap)


@pytest.mark.parametrize("compiled", [True, False])
def test_a_bad_step_is_skipped_on_all_replicas_together(tmp_path: Path, compiled: bool):
    program = Program(
        tmp_path, bad_row=BATCH * 2, traps=rx.debug.Traps(finite=True), on_trap="skip"
    )
    seen: list[Any] = []
    with pytest.warns(UserWarning, match="Step 3: .*discarded"), program.recorder:
        for number, batch in enumerate(program.data):
            if not compiled and number == 2:  # replicas that differ in shape run as Python
                batch = tuple(
                    rx.distribute.PerReplica([v, v[:2]]) for v in (b.values[0] for b in batch)
                )
            loss = program.step(*batch)
            seen.append(program.w.numpy())
    assert np.array_equal(seen[1], seen[2]) and not np.array_equal(seen[2], seen[3])
    assert np.isfinite(seen[-1]).all() and np.isfinite(np.asarray(loss))
    rx.debug.check_replicas(program.checkpoint)


def test_a_bad_last_step_is_told_when_the_recorder_is_closed(tmp_path: Path):
    """The thread that writes has ended by then, and is not waited for."""
    traps = rx.debug.Traps(finite=True)
    program = Program(tmp_path, bad_row=BATCH * 6 - 1, traps=traps, on_trap="skip")
    program.train(epochs=1)
    with pytest.warns(UserWarning) as warned:
        program.recorder.close()
    assert ["Step 6" in str(each.message) for each in warned] == [True]


def test_values_beyond_a_bound(tmp_path: Path):
    program = Program(tmp_path, traps=rx.debug.Traps(bound=50.0))
    with pytest.raises(rx.errors.TrappedStepError, match="beyond the bound: its largest value is"):
        with program.recorder:
            program.train(epochs=1)
            program.w.assign(program.w + 100.0)
            program.train(epochs=1)


def test_copies_that_differ(tmp_path: Path):
    program = Program(tmp_path, traps=rx.debug.Traps(finite=True, copies_every=2))
    with pytest.raises(rx.errors.TrappedStepError, match="Step 8: Variable 'w:0'(.|\n)*replica 1"):
        with program.recorder:
            program.train(epochs=1)
            mesh = program.w._stored.mesh
            parts = [
                jax.device_put(np.asarray(part), device)
                for part, device in zip(
                    (program.w.numpy(), program.w.numpy() + 1), mesh.devices, strict=True
                )
            ]
            program.w._set_whole(mesh.assemble(parts))
            program.train(epochs=1)
    again = Program(tmp_path / "again", traps=rx.debug.Traps(finite=True))
    again.recorder.close()
    iterator = iter(again.data)
    capsule = rx.debug.load(tmp_path / "recording" / "capsules" / "step-8")
    capsule.attach(again.manager, again.step, rx.debug.Traps(finite=True))
    changed = capsule.run(7).other_bits
    assert {replica for name, replica in changed if "gradient of w:0" in name} == {1}
    del iterator


def test_large_numbers_of_double_precision_are_finite(tmp_path: Path):
    with jax.enable_x64(True):
        w = rx.Variable(jnp.asarray([1e200], jnp.float64), name="w")
        step = rx.function(lambda x: (w.assign(w * x), jnp.sum(w.read_value()))[1])
        checkpoint = rx.train.Checkpoint(w=w)
        traps = rx.debug.Traps(finite=True)
        with rx.debug.Recorder(checkpoint, step, tmp_path / "r", traps=traps):
            assert np.isclose(step(10.0), 1e201, rtol=1e-12)
        with pytest.raises(
            rx.errors.TrappedStepError, match="Step 1: variable 'w:0' .* not finite"
        ):
            with rx.debug.Recorder(checkpoint, step, tmp_path / "s", traps=traps):
                step(1e200)


def test_a_slow_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from replicax._src.recording._probe import Probe

    probe = Probe(rx.debug.Traps(slower_than=5.0), rx.train.Checkpoint(), discards=False)
    quick = {"idle": 0.001, "step": 0.009}
    assert all(probe.finding(n, [], (), {}, quick) is None for n in range(25))
    pause = probe.finding(25, [], (), {}, {"idle": 0.5, "step": 0.01})
    assert pause is None, "the program may do something else between two steps"
    slow = {"idle": 0.25, "step": 0.45}
    assert probe.finding(26, [], (), {}, slow, is_first=True) is None, "it was compiled"
    found = probe.finding(26, [], (), {}, slow)
    assert found is not None and "50 times the median" in found.text
    assert "this program called it 0.25 s after the step before" in found.text
    times = [{"idle": 0.0}, {"idle": 0.4}, {"idle": 0.01}]
    waited = probe.of_all(found, {worker: {"times": each} for worker, each in enumerate(times)})
    assert "Workers 0, 2 waited for worker 1, whose program called it 0.4 s" in waited.text
    together = probe.of_all(found, {worker: {"times": times[0]} for worker in range(2)})
    assert "No worker was late" in together.text


def test_the_first_step_of_another_shape_is_not_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    checkpoint, step = rx.train.Checkpoint(w=rx.Variable(0.0)), rx.function(jnp.sum)
    noted: list[bool | None] = []
    with rx.debug.Recorder(checkpoint, step, tmp_path) as recorder:
        put = recorder._put

        def noting(what: Any) -> None:
            noted.append(getattr(what, "is_first", None))
            put(what)

        monkeypatch.setattr(recorder, "_put", noting)
        for rows in (4, 4, 2, 4, 2):
            step(jnp.ones(rows))
    assert noted == [None, True, False, True, False, False]


def test_metrics_that_are_not_finite(tmp_path: Path):
    mean = rx.metrics.Mean("loss")
    w = rx.Variable(1.0, name="w")

    @rx.function
    def step(x: Any) -> Any:
        mean.update_state(jnp.log(x))
        return w.assign_add(x)

    traps = rx.debug.Traps(finite=True)
    with pytest.raises(rx.errors.TrappedStepError, match="Step 2: metric loss/total:0 on replica"):
        with rx.debug.Recorder(rx.train.Checkpoint(w=w), step, tmp_path / "r", traps=traps):
            step(jnp.float32(1))
            step(jnp.float32(0))


def test_a_fault_of_the_thread_that_writes_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from replicax._src.recording import _recorder
    from replicax._src.recording._ring import Ring

    def broken(*_: object) -> None:
        raise RuntimeError("no such thing")

    monkeypatch.setattr(_recorder, "_PATIENCE_SECONDS", 1e6)
    monkeypatch.setattr(Ring, "write", broken)
    program = Program(tmp_path)
    with pytest.warns(UserWarning, match="Recording has ended: RuntimeError: no such thing"):
        program.train(epochs=1, save_every=100)
        program.recorder.close()


def test_one_recorder_that_is_closed_leaves_the_others_to_the_end_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    import atexit

    registered: list[Any] = []
    monkeypatch.setattr(atexit, "register", registered.append)
    monkeypatch.setattr(atexit, "unregister", registered.remove)
    first, second = Program(tmp_path / "a"), Program(tmp_path / "b")
    assert len(registered) == 2 and registered[0] != registered[1]
    first.recorder.close()
    assert len(registered) == 1
    registered[0]()  # what the end of the program does
    assert second.recorder.step == 0 and registered == []


def test_a_single_bit_of_a_gradient_is_seen_if_bits_are_recorded(tmp_path: Path):
    traps = rx.debug.Traps(bits=True)
    program = Program(tmp_path, traps=traps)
    with program.recorder as recorder:
        program.train(epochs=1)
        path = recorder.save(6)
    again = Program(tmp_path / "again", traps=traps)
    again.recorder.close()
    iterator = iter(again.data)
    capsule = rx.debug.load(path)
    capsule.attach(again.manager, again.step, traps)
    assert capsule.run().other_bits == ()
    figures = capsule._recorded.steps[0][6].figures
    dtype, shape, bits = figures["bits"]
    words = np.frombuffer(bytes.fromhex(bits), dtype).reshape(shape).copy()
    words[1, -1] ^= 4  # of replica 1, the gradient of w
    figures["bits"] = [dtype, shape, words.tobytes().hex()]
    assert capsule.run().other_bits == (("the gradient of w:0", 1),)
    del iterator


def test_steps_go_on_where_a_program_was_restored(tmp_path: Path):
    program = Program(tmp_path)
    with program.recorder:
        program.train(epochs=1)
    program.manager.wait()
    again = Program(tmp_path)
    again.manager.restore_or_initialize()
    with again.recorder as recorder:
        again.train(epochs=1, save_every=100)
        assert recorder.step == 4 + 6
        again.manager.save()  # after the last step
    again.manager.wait()
    last = Program(tmp_path)
    last.manager.restore_or_initialize()
    with last.recorder as recorder:
        last.train(epochs=1, save_every=100)
        assert recorder.step == 10 + 6
        assert list(rx.debug.load(recorder.save()).steps) == list(range(11, 17))


def test_a_worker_that_is_new_counts_as_the_first_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    program = Program(tmp_path)
    with program.recorder:
        program.train(epochs=1)
    program.manager.wait()
    second = SimpleNamespace(worker=1, workers=2)
    monkeypatch.setattr(_recorder, "current_membership", lambda: second)
    again = Program(tmp_path)
    again.manager.restore_or_initialize()
    with again.recorder as recorder:
        again.train(epochs=1, save_every=100)
        assert recorder.step == 4 + 6


def test_a_checkpoint_that_another_worker_still_writes_is_that_of_all(tmp_path: Path):
    checkpoint = rx.train.Checkpoint(w=rx.Variable(1.0))
    Path(checkpoint.write(tmp_path / "saved")).rename(tmp_path / "later")
    assert is_as_on_disk(checkpoint)
    checkpoint.w.assign(2.0)
    assert not is_as_on_disk(checkpoint)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("a folder", None), "CheckpointManager of the program first"),
        ((None, lambda: None), "Decorate it with @rx.function"),
    ],
)
def test_misuse(arguments: Any, words: str, tmp_path: Path):
    checkpoint, function = arguments
    checkpoint = checkpoint or rx.train.Checkpoint(w=rx.Variable(0.0))
    with pytest.raises(TypeError, match=words):
        rx.debug.Recorder(checkpoint, function or rx.function(lambda: None), tmp_path)


def test_bad_options(tmp_path: Path):
    checkpoint, step = rx.train.Checkpoint(w=rx.Variable(0.0)), rx.function(lambda: None)
    with pytest.raises(ValueError, match="'stop', 'skip', 'continue'"):
        rx.debug.Recorder(checkpoint, step, tmp_path, on_trap="panic")
    with pytest.raises(ValueError, match="no folder to write to"):
        rx.debug.Recorder(checkpoint, step)
    with pytest.raises(ValueError, match="above 0"):
        rx.debug.Traps(bound=-1.0)
    with pytest.raises(RuntimeError, match="attach"):
        with rx.debug.Recorder(checkpoint, step, tmp_path / "r") as recorder:
            step()
            rx.debug.load(recorder.save()).run()


def test_lines_are_json_with_little_in_them(tmp_path: Path):
    program = Program(tmp_path)
    with program.recorder:
        program.train(epochs=1, save_every=100)
    (segment,) = (tmp_path / "recording" / "worker-0").glob("segment-*.jsonl")
    lines = [json.loads(line) for line in segment.read_text().splitlines()]
    assert lines[0]["after"] == 0 and lines[0]["checkpoint"].endswith("start-0")
    steps = [line for line in lines if "inputs" in line]
    assert [line["inputs"][0] for line in steps] == [["element", 0, n, 0] for n in range(1, 7)]


def test_files_that_no_recorder_wrote_are_left_alone(tmp_path: Path):
    w = rx.Variable(jnp.zeros(()))
    step = rx.function(lambda x: w.assign_add(x))
    checkpoint = rx.train.Checkpoint(w=w)
    recording = tmp_path / "recording"
    mine = [recording / "start-7" / "data" / "mine.txt", recording / "unsaved-3" / "mine.txt"]
    for path in mine:
        path.parent.mkdir(parents=True)
        path.write_text("mine", encoding="utf-8")
    recording.chmod(0o700)
    manager = rx.train.CheckpointManager(checkpoint, tmp_path / "checkpoints")
    with manager, rx.debug.Recorder(manager, step, recording):
        for _ in range(5):
            step(jnp.ones(()))
            manager.save()
    assert all(path.read_text(encoding="utf-8") == "mine" for path in mine)
    starts = {path.name for path in recording.glob("start-*")}
    assert starts == {"start-7"}, "those of the recorder are gone"


@pytest.mark.parametrize("name", ["step-1-0-0.npy", "segment-00000001.jsonl", "recording.json"])
def test_a_folder_with_files_of_such_names_is_refused(tmp_path: Path, name: str):
    folder = tmp_path / "recording" / "worker-0"
    folder.mkdir(parents=True, mode=0o700)
    folder.parent.chmod(0o700)
    (folder / name).write_text("mine", encoding="utf-8")
    with pytest.raises(FileExistsError, match=f"has not written: '{name}'.*another folder"):
        Program(tmp_path)
    assert (folder / name).read_text(encoding="utf-8") == "mine"


def test_a_checkpoint_that_could_not_be_written_is_not_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    checkpoint = rx.train.Checkpoint(w=rx.Variable(1.0))
    manager = rx.train.CheckpointManager(checkpoint, tmp_path / "managed")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for save in (manager.save, lambda: checkpoint.write(tmp_path / "written")):
        with monkeypatch.context() as full:
            full.setattr(_saving, "write_arrays", fail)
            with pytest.raises(rx.errors.CheckpointError, match="disk is full"):
                save()
                assert not is_as_on_disk(checkpoint)
                manager.wait()
        assert not is_as_on_disk(checkpoint)
        save()
        assert is_as_on_disk(checkpoint)


def test_checkpoints_of_segments_to_come_are_kept(tmp_path: Path):
    ring = Ring(str(tmp_path / "recording" / "worker-0"), 1 << 20)
    checkpoint = rx.train.Checkpoint(w=rx.Variable(1.0))
    paths = [checkpoint.write(ring.place_for(f"start-{step}")) for step in (2, 4, 6)]
    left = checkpoint.write(tmp_path / "recording" / "start-100")  # of a program that was killed
    ring.begin_segment(2, paths[0])
    assert all(map(os.path.isdir, paths)) and not os.path.isdir(left)
    for step in (4, 6, 8, 10):
        ring.begin_segment(
            step, str(tmp_path / f"ckpt-{step}") if step > 6 else paths[step // 2 - 1]
        )
    assert list(map(os.path.isdir, paths)) == [False, False, True]
    ring.close()
