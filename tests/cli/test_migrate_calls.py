"""How a program is ported, by calls and objects: arguments, methods, tapes."""

import pytest

from tests.cli.porting import advice, check, ported

# --- calls ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("s.experimental_run_v2(f, (x,))", "s.run(f, (x,))"),
        ("s.experimental_run(f)", "s.run(f)"),
        ("s.experimental_run(f, it)", "s.run(f, args=(it.get_next(),))"),
        (
            "s.experimental_run(fn=f, input_iterator=a if b else c)",
            "s.run(fn=f, args=((a if b else c).get_next(),))",
        ),
        (
            "it = s.make_dataset_iterator(ds.batch(2))",
            "it = iter(s.experimental_distribute_dataset(ds.batch(2)))",
        ),
        (
            "s.make_input_fn_iterator(f, tf.distribute.InputReplicationMode.PER_WORKER)",
            "iter(s.distribute_datasets_from_function(f))",
        ),
        (
            "s.make_input_fn_iterator(input_fn=f)",
            "iter(s.distribute_datasets_from_function(dataset_fn=f))",
        ),
        ("s.reduce('SUM', x)", "s.reduce('SUM', x, axis=None)"),
        ("s.reduce('SUM', value=(x),)", "s.reduce('SUM', value=(x), axis=None,)"),
        ("s.reduce('SUM', x, axis=0)", "s.reduce('SUM', x, axis=0)"),
        ("s.unwrap(x)", "s.experimental_local_results(x)"),
        (
            "s.extended.batch_reduce_to('SUM', p, experimental_hints=h)",
            "s.extended.batch_reduce_to('SUM', p, options=h)",
        ),
        ("tf.distribute.get_loss_reduction()", "rx.distribute.ReduceOp.SUM"),
        (
            "tf.distribute.experimental.MultiWorkerMirroredStrategy(c, r)",
            "rx.distribute.MultiWorkerMirroredStrategy(communication_options="
            "rx.distribute.experimental.CommunicationOptions(implementation=c), "
            "cluster_resolver=r)",
        ),
        (
            "tf.distribute.experimental.MultiWorkerMirroredStrategy(\n    communication=c,\n)",
            "rx.distribute.MultiWorkerMirroredStrategy(\n    communication_options="
            "rx.distribute.experimental.CommunicationOptions(implementation=c),\n)",
        ),
        (
            "tf.distribute.experimental.TPUStrategy(r, device_assignment=a)",
            "rx.distribute.TPUStrategy(r, experimental_device_assignment=a)",
        ),
        (
            "tf.function(f, experimental_relax_shapes=True)",
            "rx.function(f, reduce_retracing=True)",
        ),
        ("tf.data.make_one_shot_iterator(ds)", "iter(ds)"),
        ("ds.make_one_shot_iterator().get_next()", "iter(ds).get_next()"),
        ("(a + b).numpy().sum()", "np.asarray(a + b).sum()"),
        ("print(f'{x.numpy():.3f}')", "print(f'{np.asarray(x):.3f}')"),
        ("x[..., tf.newaxis]", "x[..., None]"),
    ],
)
def test_old_calls_become_those_of_today(before: str, after: str):
    head = "import numpy as np\nimport {}\ns = {}.distribute.MirroredStrategy()\n"
    check(
        f"{head.format('tensorflow.compat.v1 as tf', 'tf')}{before}\n",
        f"{head.format('replicax as rx', 'rx')}{after}\n",
    )


def test_calls_that_are_not_needed_any_more_go():
    check(
        """\
        import tensorflow as tf
        tf.compat.v1.enable_v2_behavior()
        tf.enable_eager_execution()  # we want 2
        if old:
            tf.compat.v1.enable_eager_execution()
        v = tf.Variable(1.0)
        """,
        """\
        import replicax as rx
        # we want 2
        if old:
            pass
        v = rx.Variable(1.0)
        """,
    )
    assert advice("import tensorflow as tf\nx = tf.enable_v2_behavior()\n") == {
        2: ["tf.enable_v2_behavior: leave it out"]
    }


def test_a_block_of_which_nothing_is_left_is_still_a_block():
    check(
        """\
        try:
            import tensorflow as tf
            tf.compat.v1.enable_v2_behavior()
        except ImportError:
            raise
        """,
        """\
        try:
            pass
        except ImportError:
            raise
        """,
    )


def test_arguments_that_are_not_to_be_seen_are_left():
    program = """\
        import tensorflow as tf
        s = tf.distribute.MirroredStrategy()
        s.experimental_run(f, *arguments)
        s.reduce(*arguments)
        """
    assert "s.experimental_run(f, *arguments)" in ported(program).new
    assert list(advice(program)) == [3]


def test_arguments_that_replicax_does_not_take_are_said():
    program = """\
        import tensorflow as tf
        v = tf.Variable(1, use_resource=True)
        d = tf.data.Dataset.range(3).batch(2, False, 1, True, "name", 3)
        z = tf.zeros([3], name="z"), tf.sort(z, direction=up), tf.split(z, sizes)
        tf.data.Dataset.fingerprint("here")
        tf.distribute.ReduceOp.MAX
        """
    assert advice(program) == {
        2: ["rx.Variable(): takes no use_resource=; leave it out if it is not needed"],
        3: ["rx.data.Dataset.batch(): takes 5 positional arguments, not 6"],
        4: [
            "tf.sort -> jnp.sort: takes no direction=",
            "tf.split -> jnp.split: takes the places to split at, not the sizes of the parts",
        ],
        5: ["tf.data.Dataset.fingerprint: rx.data.Dataset does not have it: see from_generator"],
        6: ["tf.distribute.ReduceOp.MAX: rx.distribute.ReduceOp has no MAX"],
    }


# --- objects --------------------------------------------------------------------------------------


def test_objects_are_known_by_how_they_were_made():
    program = """\
        import tensorflow as tf
        def make():
            return tf.distribute.MirroredStrategy()
        class Trainer:
            def __init__(self, resolver, data: tf.data.Dataset):
                self._distribution = tf.distribute.TPUStrategy(resolver)
                self.data = data
            def run(self):
                with self._distribution.scope():
                    self._distribution.unwrap(1)
                    self.data.unwrap(1)
        thing = make()
        thing.unwrap(1)
        with tf.GradientTape() as t:
            pass
        g = t.gradient(target=loss, sources=[w])
        other.unwrap(1)
        """
    text = ported(program).new
    assert text.count("experimental_local_results(1)") == 2
    assert "other.unwrap(1)" in text
    assert advice(program)[11] == [
        "Dataset.unwrap: rx.data.Dataset does not have it: see from_generator"
    ]
    assert advice(program)[16] == [
        "GradientTape.gradient: loss, g = rx.value_and_grad(loss_fn, [w])"
    ]


def gradient_lines(block: str, below: str) -> list[str]:
    """What is said of a tape that is used otherwise as well, and of the line that asks it."""
    lines = ["def step(x, y):", "    with tf.GradientTape() as tape:"]
    lines += [f"        {line}" for line in block.split("; ")]
    lines += [f"    {line}" for line in [*below.split("; "), "print(tape)"]]
    found = advice("import tensorflow as tf\n" + "\n".join(lines) + "\n")
    return [text.partition(": ")[2] for _, texts in sorted(found.items()) for text in texts]


def test_what_is_read_below_a_tape_is_returned_beside_the_loss():
    below = "grads = tape.gradient(loss, ws); metric.update_state(y, out); return loss"
    assert gradient_lines("out = model(x); rows = f(y, out); loss = rows.mean()", below) == [
        "make the block a function, loss_fn, that returns loss, out",
        "(loss, out), grads = rx.value_and_grad(loss_fn, ws, has_aux=True)",
    ]
    below = "grads = tape.gradient(target=total, sources=ws); return lambda: (loss, out)"
    assert gradient_lines("out, loss = f(x); total = 2 * loss", below) == [
        "make the block a function, loss_fn, that returns total, (out, loss)",
        "(total, (out, loss)), grads = rx.value_and_grad(loss_fn, ws, has_aux=True)",
    ]


@pytest.mark.parametrize(
    ("block", "below"),
    [
        ("out = model(x); loss = f(out)", "grads = tape.gradient(loss, ws); return loss"),
        # Given again before it is read.
        ("out = model(x); loss = f(out)", "grads = tape.gradient(loss, ws); out = 1; print(out)"),
        # A name of another function, and of the block alone.
        ("loss = sum(out for out in model(x))", "grads = tape.gradient(loss, ws); print(y)"),
    ],
)
def test_what_is_not_read_below_a_tape_is_not_returned(block: str, below: str):
    assert gradient_lines(block, below) == [
        "make the block a function, loss_fn, that returns the loss",
        "loss, grads = rx.value_and_grad(loss_fn, ws)",
    ]


def test_two_tapes_are_asked_together():
    check(
        """\
        import tensorflow as tf
        with tf.GradientTape() as a, tf.GradientTape() as b:
            out = model(x)
            one, two = f(out), g(out)
        for_one = a.gradient(one, ws)
        for_two = b.gradient(two, vs)
        print(out)
        """,
        """\
        import replicax as rx
        def loss_fn():
            out = model(x)
            one, two = f(out), g(out)
            return (one, two), out

        ((one, two), out), (for_one, for_two) = rx.values_and_grads(loss_fn, (ws, vs), has_aux=True)
        print(out)
        """,
    )


def test_a_tape_that_is_asked_in_its_block_or_never():
    check(
        """\
        import tensorflow as tf
        def step(x):
            with tf.GradientTape() as tape:
                parts = []
                parts.append(model(x))
                loss = sum(parts)
                # and now
                grads = tape.gradient(loss, ws)
                if grads:
                    show("loss",
                         loss)
            with tf.GradientTape() as tape:
                loss = model(x)
            return loss
        """,
        """\
        import replicax as rx
        def step(x):
            def loss_fn():
                parts = []
                parts.append(model(x))
                loss = sum(parts)
                return loss

            # and now
            loss, grads = rx.value_and_grad(loss_fn, ws)
            if grads:
                show("loss",
                     loss)
            loss = model(x)
            return loss
        """,
    )


def test_watched_arrays_and_variables():
    check(
        """\
        import tensorflow as tf
        def penalty(real, fake):
            mid = real + fake
            with tf.GradientTape() as tape:
                tape.watch(mid)
                found = critic(mid)
            grads = tape.gradient(found, [mid])[0]
            return grads, found
        def both(x):
            with tf.GradientTape(persistent=True) as tape:
                tape.watch(m.trainable_variables)
                loss = m(x)
            one = tape.gradient(loss, m.trainable_variables)
            two = tape.gradient(loss, ws)
            return one, two
        """,
        """\
        import jax
        import jax.numpy as jnp
        import replicax as rx
        def penalty(real, fake):
            mid = real + fake
            def loss_fn(mid):
                found = critic(mid)
                return jnp.sum(found), found

            grads, found = jax.grad(loss_fn, has_aux=True)(mid)
            return grads, found
        def both(x):
            def loss_fn():
                loss = m(x)
                return loss

            loss, (one, two) = rx.value_and_grad(loss_fn, (m.trainable_variables, ws))
            return one, two
        """,
    )


TAPE = """\
import tensorflow as tf
def step(x, y, total):
    with tf.GradientTape() as tape:  # one
        {}
    grads = tape.gradient(loss, ws)
    {}
"""


@pytest.mark.parametrize(
    ("block", "below", "function", "result", "line"),
    [
        (
            "loss = f(x)",
            "return loss",
            "()",
            "loss",
            "loss, grads = rx.value_and_grad(loss_fn, ws)",
        ),
        (
            "out = m(x); loss = f(out)",
            "return loss, out",
            "()",
            "loss, out",
            "(loss, out), grads = rx.value_and_grad(loss_fn, ws, has_aux=True)",
        ),
        (
            "x = x / 2; out = m(x); loss = f(out, x)",
            "print(out, x)",
            "(x=x)",
            "loss, (x, out)",
            "(loss, (x, out)), grads = rx.value_and_grad(loss_fn, ws, has_aux=True)",
        ),
        (
            "loss = f(x); total += loss",
            "return total",
            "(total=total)",
            "loss, total",
            "(loss, total), grads = rx.value_and_grad(loss_fn, ws, has_aux=True)",
        ),
        (
            "loss = f(x)",
            "if x: loss = 1\n    return loss",
            "()",
            "loss",
            "loss, grads = rx.value_and_grad(loss_fn, ws)",
        ),
    ],
)
def test_a_tape_becomes_a_function_of_the_loss(
    block: str, below: str, function: str, result: str, line: str
):
    program = TAPE.format(block, below)
    assert not ported(program).left
    assert ported(program).new == (
        "import replicax as rx\n"
        f"def step(x, y, total):\n    def loss_fn{function}:  # one\n        {block}\n"
        f"        return {result}\n\n    {line}\n    {below}\n"
    )


@pytest.mark.parametrize(
    ("block", "below"),
    [
        ("loss = f(x, tape)", "return grads"),
        ("loss = f(x)", "return grads, tape.gradient(loss, x)"),
        ("self.loss = loss = f(x)", "return grads"),
        ("losses.append(x); loss = f(x)", "return grads"),
        ("global z; loss = z = f(x)", "return grads"),
        ("ws = m(x); loss = f(ws)", "return grads"),
        ("other = f(x)", "return grads"),
        ("loss = f(x); return loss", "pass"),
    ],
)
def test_a_tape_in_another_shape_is_marked(block: str, below: str):
    assert {3, 5} <= advice(TAPE.format(block, below)).keys()


def test_names_of_a_tape_are_read_in_loops_and_functions_too():
    program = """\
        import tensorflow as tf
        for loss_fn in losses:
            if ready: print(out)
            with tf.GradientTape() as tape:
                out = model(x)
                rows = loss_fn(out)
                loss = sum(rows)
            grads = tape.gradient(loss, ws)
        def show():
            print(rows)
        """
    new = ported(program).new
    assert "    def loss_fn_2():\n" in new
    assert "    (loss, (out, rows)), grads = rx.value_and_grad(loss_fn_2, ws, has_aux=True)" in new


def remarks(program: str) -> list[str]:
    """What is said of lines that change by themselves."""
    found = ported(program).findings
    return [each.advice for each in found if each.name.startswith("tf.train") and each.advice]


def test_checkpoint_of_a_keras_model_needs_a_scope():
    model = "model = tf.keras.Sequential()\n"
    saving = "checkpoint = tf.train.Checkpoint(model=model)\n"
    (said,) = remarks(f"import tensorflow as tf\n{model}{saving}")
    assert 'rx.distribute.OneDeviceStrategy("CPU:0")' in said
    assert ported(f"import tensorflow as tf\n{model}{saving}").left == 0
    assert not remarks(f"import tensorflow as tf\nmodel = tf.Variable(1.0)\n{saving}")
    scope = "with tf.distribute.MirroredStrategy().scope():\n"
    assert not remarks(f"import tensorflow as tf\n{scope}    {model}{saving}")


def test_temporary_folders_of_workers_are_not_needed():
    saving = "manager = tf.train.CheckpointManager(checkpoint, folder)\n"
    assert not remarks(f"import tensorflow as tf\n{saving}")
    (said,) = remarks(f"import tensorflow as tf\nfolder = f'temporary_{{task_id}}'\n{saving}")
    assert "all workers save to one folder" in said


def test_methods_are_known_by_common_names_beside_tensorflow():
    body = """\
        loss = model(x, training=True)
        model.fit(dataset)
        train_ds = train_ds.map(f, batched=True)
        n = x.shape.as_list(), x.get_shape().rank
        """
    result = ported("        import tensorflow as tf\n        tf.Variable(1)\n" + body)
    assert not result.left
    assert result.new.splitlines()[-1] == "n = list(x.shape), len(x.shape)"
    assert ported(f"        import torch  # not keras\n{body}").findings == ()


def test_objects_are_followed_through_tuples_items_and_optional_types():
    program = """\
        import tensorflow as tf
        import tensorflow_datasets as tfds
        sets, info = tfds.load("mnist", with_info=True)
        train, test = sets["train"], sets["test"]
        train.no_such_method()
        def f(a: Optional[tf.distribute.Strategy], b: tf.data.Dataset | None, c=None):
            c = c or tf.distribute.get_strategy()
            a.unwrap(1), c.unwrap(1), b.unwrap(1)
        tf.Variable([1.0])[0].assign(2.0)
        options = tf.data.Options()
        options.threading.private_threadpool_size = 1
        options.no_such_option = 1
        coordinator = tf.distribute.coordinator.ClusterCoordinator(c)
        coordinator.join()
        low = tf.float32.min, tf.int32.max
        """
    found = advice(program)
    assert ported(program).new.count("experimental_local_results(1)") == 2
    assert found[5] == [
        "Dataset.no_such_method: rx.data.Dataset does not have it: see from_generator"
    ]
    assert found[8] == ["Dataset.unwrap: rx.data.Dataset does not have it: see from_generator"]
    assert found[9] == ["VariableSlice.assign: v.assign(v.at[index].set(value))"]
    assert 11 not in found and found[12] == [
        "Options.no_such_option: rx.data.Options does not have it"
    ]
    assert 13 not in found and 14 not in found
    assert found[15] == [
        "tf.float32.min: jnp.finfo(jnp.float32).min",
        "tf.int32.max: jnp.iinfo(jnp.int32).max",
    ]


def test_attributes_of_checkpoints_and_what_is_known_of_data_sets_are_no_methods():
    program = """\
        import tensorflow as tf
        import tensorflow_datasets as tfds
        checkpoint = tf.train.Checkpoint(steps=tf.Variable(0))
        checkpoint.steps.assign_add(1)
        (train, test), info = tfds.load("mnist", with_info=True)
        n = info.splits["train"].num_examples
        """
    assert list(advice(program)) == [5]


def test_what_configures_tensorflow_goes():
    check(
        """\
        import tensorflow as tf
        for gpu in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(gpu, True)
        tf.config.set_soft_device_placement(True)
        """,
        """\
        import replicax as rx
        for gpu in rx.config.list_physical_devices("GPU"):
            pass
        """,
    )
