"""Loops written by hand with Keras objects: the tutorial on custom training, and its parts."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from tests.integrations.keras_programs import X, Y, keras, layers, ops, same, seeded
from tests.replicas import by_replica, mirrored, parts_of
from tests.under_test import Executor

BATCH, CLASSES = 8, 3


def images_and_labels(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Small pictures: each class has its own bright line."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(CLASSES, size=rows)
    images = 0.1 * rng.normal(size=(rows, 6, 6, 1))
    images[np.arange(rows), 1 + labels] += 1.0
    return images.astype(np.float32), labels.astype(np.int32)


def create_model() -> Any:
    regularizer = keras.regularizers.L2(1e-4)
    return keras.Sequential(
        [
            keras.Input((6, 6, 1)),
            layers.Conv2D(4, 3, activation="relu", kernel_regularizer=regularizer),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(8, activation="relu"),
            layers.Dense(CLASSES),
        ]
    )


class Tutorial:
    """ "Custom training with tf.distribute.Strategy", line by line."""

    def __init__(self, strategy: Any, folder: Path):
        train = rx.data.Dataset.from_tensor_slices(images_and_labels(60, 0)).batch(BATCH)
        test = rx.data.Dataset.from_tensor_slices(images_and_labels(22, 1)).batch(BATCH)
        train_dist_dataset = strategy.experimental_distribute_dataset(train)
        test_dist_dataset = strategy.experimental_distribute_dataset(test)

        with strategy.scope():
            loss_object = keras.losses.SparseCategoricalCrossentropy(
                from_logits=True, reduction=None
            )

            def compute_loss(labels, predictions, model_losses):
                per_example_loss = loss_object(labels, predictions)
                loss = rx.nn.compute_average_loss(per_example_loss, global_batch_size=BATCH)
                if model_losses:
                    loss += rx.nn.scale_regularization_loss(sum(model_losses))
                return loss

            test_loss = keras.metrics.Mean(name="test_loss")
            train_accuracy = keras.metrics.SparseCategoricalAccuracy(name="train_accuracy")
            test_accuracy = keras.metrics.SparseCategoricalAccuracy(name="test_accuracy")
            self.model = model = create_model()
            self.optimizer = optimizer = keras.optimizers.Adam(learning_rate=0.02)
            checkpoint = rx.train.Checkpoint(optimizer=optimizer, model=model)

        def train_step(inputs):
            images, labels = inputs

            def loss_fn():
                predictions = model(images, training=True)
                return compute_loss(labels, predictions, model.losses), predictions

            (loss, predictions), gradients = rx.value_and_grad(
                loss_fn, model.trainable_variables, has_aux=True
            )
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))
            train_accuracy.update_state(labels, predictions)
            return loss

        def test_step(inputs):
            images, labels = inputs
            predictions = model(images, training=False)
            t_loss = loss_object(labels, predictions)
            test_loss.update_state(t_loss)
            test_accuracy.update_state(labels, predictions)

        @rx.function
        def distributed_train_step(dataset_inputs):
            per_replica_losses = strategy.run(train_step, args=(dataset_inputs,))
            return strategy.reduce(rx.distribute.ReduceOp.SUM, per_replica_losses, axis=None)

        @rx.function
        def distributed_test_step(dataset_inputs):
            return strategy.run(test_step, args=(dataset_inputs,))

        self.epochs = []
        for epoch in range(3):
            total_loss = 0.0
            num_batches = 0
            for x in train_dist_dataset:
                total_loss += distributed_train_step(x)
                num_batches += 1
            train_loss = total_loss / num_batches
            for x in test_dist_dataset:
                distributed_test_step(x)
            if epoch % 2 == 0:
                checkpoint.save(folder / "ckpt")
            results = (train_accuracy.result(), test_loss.result(), test_accuracy.result())
            self.epochs.append([float(train_loss), *map(float, results)])
            test_loss.reset_state()
            train_accuracy.reset_state()
            test_accuracy.reset_state()


@pytest.fixture(scope="module")
def on_one_replica(tmp_path_factory: pytest.TempPathFactory) -> Any:
    keras.utils.set_random_seed(0)
    return Tutorial(mirrored(1), tmp_path_factory.mktemp("one")).epochs


@pytest.mark.parametrize("strategy", ["mirrored_2"], indirect=True)
def test_the_tutorial_learns_as_on_one_replica(strategy: Any, on_one_replica: Any, tmp_path: Path):
    keras.utils.set_random_seed(0)
    program = Tutorial(strategy, tmp_path)
    same(program.epochs, on_one_replica)
    losses = [epoch[0] for epoch in program.epochs]
    assert losses[-1] < 0.5 * losses[0]
    assert program.epochs[-1][3] > 0.9

    # "Restore the latest checkpoint and test", with models of other strategies.
    images, labels = images_and_labels(22, 1)
    for other in (mirrored(2), rx.distribute.OneDeviceStrategy("CPU:0")):
        with other.scope():
            eval_accuracy = keras.metrics.SparseCategoricalAccuracy(name="eval_accuracy")
            new_model = create_model()
            new_optimizer = keras.optimizers.Adam()
        checkpoint = rx.train.Checkpoint(optimizer=new_optimizer, model=new_model)
        checkpoint.restore(rx.train.latest_checkpoint(tmp_path)).expect_partial()

        @rx.function
        def eval_step(images, labels, model=new_model, accuracy=eval_accuracy):
            predictions = model(images, training=False)
            accuracy.update_state(labels, predictions)

        other.run(eval_step, args=(images, labels))
        assert float(eval_accuracy.result()) == pytest.approx(program.epochs[-1][3])


def test_checkpoints_bring_the_optimizer_back(tmp_path: Path):
    program = Tutorial(mirrored(2), tmp_path)
    with mirrored(3).scope():
        model, optimizer = create_model(), keras.optimizers.Adam(learning_rate=0.01)
        optimizer.build(model.trainable_variables)
    checkpoint = rx.train.Checkpoint(optimizer=optimizer, model=model)
    checkpoint.restore(rx.train.latest_checkpoint(tmp_path)).assert_consumed()
    same(model.get_weights(), program.model.get_weights(), atol=0)
    same(
        *([np.asarray(v) for v in each.variables] for each in (optimizer, program.optimizer)),
        atol=0,
    )


def test_a_model_and_an_optimizer_from_outside_of_scopes(tmp_path: Path):
    def train(compiled: bool) -> Any:
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.Input((4,)), layers.Dense(3), layers.Dense(1)])
        optimizer = keras.optimizers.Adam(0.01)

        def step() -> Any:
            loss, gradients = rx.value_and_grad(
                lambda: ((model(X)[:, 0] - X[:, 0]) ** 2).mean(), model.trainable_variables
            )
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        take = rx.function(step) if compiled else step
        return [float(take()) for _ in range(3)], model, optimizer

    losses, model, optimizer = train(compiled=True)
    np.testing.assert_allclose(losses, train(compiled=False)[0], rtol=1e-5)
    path = rx.train.Checkpoint(model=model, optimizer=optimizer).save(tmp_path / "ckpt")
    _, again, other = train(compiled=False)
    again.set_weights([np.zeros(v.shape) for v in again.weights])
    rx.train.Checkpoint(model=again, optimizer=other).restore(path).assert_consumed()
    same(again.get_weights(), model.get_weights(), atol=0)
    assert int(other.iterations.value) == 3


def test_a_model_from_outside_of_scopes_that_a_function_builds_is_restored(tmp_path: Path):
    with mirrored(2).scope():
        saved = keras.Sequential([layers.Dense(3), layers.Dense(1)])
        expected = np.asarray(saved(X))
    path = rx.train.Checkpoint(model=saved).save(tmp_path / "ckpt")
    model = keras.Sequential([layers.Dense(3), layers.Dense(1)])
    rx.train.Checkpoint(model=model).restore(path)
    ask = rx.function(lambda x: model(x))
    np.testing.assert_allclose(ask(X), expected, rtol=1e-5)
    np.testing.assert_allclose(ask(X[:2]), expected[:2], rtol=1e-5)


def test_layers_that_are_built_after_restore_get_their_values(tmp_path: Path):
    def make() -> Any:
        last, first = layers.Dense(1), layers.Dense(3)  # not in the order of use
        model = keras.Sequential([first, last])
        return model, keras.optimizers.SGD(0.1, momentum=0.9)

    def train(model: Any, optimizer: Any) -> Any:
        model.compile(optimizer, "mse")
        return model.fit(X, Y, verbose=0, batch_size=14).history["loss"], model.get_weights()

    strategy = mirrored(2)
    with strategy.scope():
        model, optimizer = make()
    train(model, optimizer)
    path = rx.train.Checkpoint(model=model, optimizer=optimizer).save(tmp_path / "ckpt")
    with strategy.scope():
        new_model, new_optimizer = make()
    checkpoint = rx.train.Checkpoint(model=new_model, optimizer=new_optimizer)
    status = checkpoint.restore(path)
    same(train(new_model, new_optimizer), train(model, optimizer))
    status.assert_consumed()


def regression() -> Any:
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3, "tanh"), layers.Dense(1)])
    return model, keras.optimizers.Adam(0.1, global_clipnorm=0.5)


@pytest.mark.parametrize(
    ("strategy", "how"),
    [("mirrored_2", "apply"), ("mirrored_2", "average"), ("central_storage_2", "apply_gradients")],
    indirect=["strategy"],
)
def test_optimizers_add_up_the_gradients_of_replicas(strategy: Any, executor: Executor, how: str):
    def train(strategy: Any) -> Any:
        model, optimizer = seeded(regression, strategy)
        count = strategy.num_replicas_in_sync
        average = keras.losses.MeanSquaredError()
        errors = keras.losses.MeanSquaredError(reduction=None)

        def step(x: Any, y: Any) -> Any:
            def loss() -> Any:
                if how == "average":  # a mean of the replica's rows is its share of the mean of all
                    return average(y, model(x, training=True))
                return rx.nn.compute_average_loss(
                    errors(y, model(x, training=True)), global_batch_size=12
                )

            value, gradients = rx.value_and_grad(loss, model.trainable_variables)
            if how == "apply":
                optimizer.apply(gradients, model.trainable_variables)
            else:
                optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return value

        x = by_replica(strategy, lambda i: X[:12][i::count])
        y = by_replica(strategy, lambda i: Y[:12][i::count])
        run = executor.step(strategy, step)
        losses = [float(strategy.reduce("SUM", run(x, y), axis=None)) for _ in range(2)]
        return losses, model.get_weights(), int(np.asarray(optimizer.iterations))

    same(train(strategy), train(mirrored(1)))


@pytest.mark.parametrize("strategy", ["mirrored_2"], indirect=True)
def test_metrics_count_the_rows_of_all_replicas(strategy: Any, executor: Executor):
    with strategy.scope():
        metrics = [
            keras.metrics.Mean(),
            keras.metrics.Sum(),
            keras.metrics.MeanSquaredError(),
            keras.metrics.AUC(num_thresholds=5),
        ]
    truth = (np.arange(6) % 2).astype(np.float32)
    guess = np.linspace(0, 1, 6).astype(np.float32) ** 2

    def step(y: Any, p: Any) -> Any:
        metrics[0].update_state(p)
        metrics[1].update_state(p, sample_weight=y)
        metrics[2].update_state(y, p)
        metrics[3].update_state(y, p)
        return metrics[2].result()

    y, p = by_replica(strategy, lambda i: truth[i::2]), by_replica(strategy, lambda i: guess[i::2])
    plain = [
        keras.metrics.Mean(),
        keras.metrics.Sum(),
        keras.metrics.MeanSquaredError(),
        keras.metrics.AUC(num_thresholds=5),
    ]
    run = executor.step(strategy, step)
    for _ in range(2):  # after a reset it begins again
        mine = parts_of(strategy, run(y, p))
        plain[0].update_state(guess)
        plain[1].update_state(guess, sample_weight=truth)
        plain[2].update_state(truth, guess)
        plain[3].update_state(truth, guess)
        found = [float(m.result()) for m in metrics]
        np.testing.assert_allclose(found, [float(m.result()) for m in plain], atol=1e-6)
        assert mine[0] != mine[1]  # in a replica: of its own rows
        for metric in (*metrics, *plain):
            metric.reset_state()


@pytest.mark.parametrize("strategy", ["mirrored_2"], indirect=True)
def test_state_and_randomness_of_layers(strategy: Any, executor: Executor):
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((4,)),
                layers.BatchNormalization(momentum=0.0),
                layers.Dropout(0.5, seed=1),
            ]
        )
    x = by_replica(strategy, lambda i: X[:12][i::2])
    found = []
    run = executor.step(strategy, lambda x: model(x, training=True))
    for _ in range(2):
        found += parts_of(strategy, run(x))
    masks = {(part != 0).tobytes() for part in found}
    assert len(masks) == 4  # other numbers on each replica and in each step
    expected = np.mean([X[:12][i::2].mean(axis=0) for i in range(2)], axis=0)
    np.testing.assert_allclose(np.asarray(model.layers[0].moving_mean), expected, atol=1e-5)


def test_accumulated_gradients_and_averages(executor: Executor):
    def train(strategy: Any) -> Any:
        keras.utils.set_random_seed(0)
        with strategy.scope():
            dense = layers.Dense(1)
            dense.build((None, 4))
            optimizer = keras.optimizers.SGD(
                0.1, gradient_accumulation_steps=2, use_ema=True, ema_momentum=0.5
            )
        count = strategy.num_replicas_in_sync

        def step(x: Any) -> None:
            _, gradients = rx.value_and_grad(
                lambda: ops.sum(ops.square(dense(x))) / 12, dense.trainable_variables
            )
            optimizer.apply(gradients, dense.trainable_variables)

        x = by_replica(strategy, lambda i: X[:12][i::count])
        run = executor.step(strategy, step)
        for _ in range(3):
            run(x)
        kept = [np.asarray(v) for v in optimizer.variables]
        optimizer.finalize_variable_values(dense.trainable_variables)
        return kept, np.asarray(dense.kernel)

    same(train(mirrored(2)), train(mirrored(1)))


def test_an_epoch_in_one_function():
    strategy = mirrored(2)
    with strategy.scope():
        model, optimizer = seeded(regression)
    data = rx.data.Dataset.from_tensor_slices((X[:12], Y[:12])).batch(5)  # shares of 3 and 2
    loss_object = keras.losses.MeanSquaredError(reduction=None)

    def train_step(batch: Any) -> Any:
        x, y = batch

        def loss_fn() -> Any:
            return rx.nn.compute_average_loss(loss_object(y, model(x)), global_batch_size=5)

        loss, gradients = rx.value_and_grad(loss_fn, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @rx.function
    def distributed_train_epoch(dataset):
        total_loss = 0.0
        for x in dataset:
            total_loss += strategy.reduce("SUM", strategy.run(train_step, args=(x,)), axis=None)
        return total_loss

    distributed = strategy.experimental_distribute_dataset(data)
    losses = [float(distributed_train_epoch(distributed)) for _ in range(4)]
    assert losses[-1] < losses[0]
    assert int(np.asarray(optimizer.iterations)) == 12


def test_names_with_numbers_that_the_user_gave_are_kept_in_checkpoints(tmp_path: Path):
    class Two(keras.Model):
        def __init__(self, names: list[str]):
            super().__init__()
            self.parts = [layers.Dense(2, name=name) for name in names]

        def call(self, x: Any) -> Any:
            return sum(part(x) for part in self.parts)

    models = []
    for names in (["enc_1", "enc_2"], ["enc_2", "enc_1"]):
        with mirrored(2).scope():
            models.append(Two(names))
            models[-1](X)
    path = rx.train.Checkpoint(model=models[0]).save(tmp_path / "ckpt")
    rx.train.Checkpoint(model=models[1]).restore(path).assert_consumed()
    for name in ("enc_1", "enc_2"):
        one, other = (model.get_layer(name).get_weights() for model in models)
        same(one, other, atol=0)


class Subclassed(keras.Model):
    """Has no variables before it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = layers.Dense(1)

    def call(self, x: Any) -> Any:
        return self.dense(x)


@pytest.mark.parametrize("rows", [(3, 3), (3, 2)])
def test_a_step_that_failed_leaves_nothing_behind(rows: tuple[int, int]):
    """Variables that were about to be made are made in the next step, in their own strategy."""
    strategy = mirrored(2)
    batch = rx.distribute.PerReplica([np.ones((n, 4), np.float32) for n in rows])

    def program() -> Any:
        with strategy.scope():
            model, optimizer = Subclassed(), keras.optimizers.SGD(0.1)

        def step(x: Any) -> Any:
            variables = model.trainable_variables
            loss, gradients = rx.value_and_grad(lambda: ops.sum(model(x)), variables)
            optimizer.apply_gradients(zip(gradients, variables))
            return loss

        return model, rx.function(lambda x: strategy.run(step, args=(x,)))

    model, step = program()
    with pytest.raises(ValueError, match="given no variables.*Call it once in the strategy"):
        step(batch)
    _, other_step = program()
    with pytest.raises(ValueError, match="given no variables"):
        other_step(batch)  # of its own variables, not of those that the first one has left
    step(batch)
    [kernel, bias] = model.trainable_variables
    np.testing.assert_allclose(np.asarray(bias), [-0.1 * sum(rows)], atol=1e-6)
    assert kernel.__rx_variable__.distribute_strategy is strategy


class Penalty(layers.Layer):
    """Computes with its weight by functions of JAX."""

    def build(self, shape: Any) -> None:
        self.w = self.add_weight(shape=(shape[-1],), initializer="ones")

    def call(self, x: Any) -> Any:
        self.add_loss(0.1 * jnp.sum(jnp.square(self.w)))
        return jnp.matmul(x, self.w)


def test_functions_of_jax_take_keras_variables():
    strategy = mirrored(2)
    with strategy.scope():
        layer = Penalty()
        layer.build((None, 4))
        np.testing.assert_allclose(jnp.sum(layer.w), 4.0)

    def step(x: Any) -> Any:
        def loss() -> Any:
            return jnp.sum(layer(x)) + jnp.sum(jnp.square(layer.w))

        return rx.value_and_grad(loss, [layer.w])

    expected = 3 * np.ones(4) + 2
    for run in (strategy.run, rx.function(lambda fn, args: strategy.run(fn, args))):
        loss, [gradient] = run(step, (jnp.ones((3, 4)),))
        for part in parts_of(strategy, gradient):
            np.testing.assert_allclose(part, expected)
    assert strategy.run(lambda v: v.path, (layer.w,)) == layer.w.path  # a variable, not its value


def test_functions_of_jax_take_keras_variables_in_fit():
    def make(kind: Any = Penalty) -> Any:
        model = keras.Sequential([keras.Input((4,)), kind()])
        model.compile(keras.optimizers.SGD(0.1), "mse")
        return model

    def program(model: Any) -> Any:
        history = model.fit(X, Y[:, 0], batch_size=8, verbose=0).history
        return history, model.get_weights()

    class ByKeras(Penalty):
        def call(self, x: Any) -> Any:
            self.add_loss(0.1 * ops.sum(ops.square(self.w)))
            return ops.matmul(x, self.w)

    found = program(seeded(make, mirrored(2)))
    same(found, program(seeded(lambda: make(ByKeras))))


@pytest.mark.parametrize("compiled", [False, True])
def test_moving_averages_of_a_model(compiled: bool):
    strategy = mirrored(2)
    with strategy.scope():
        model = keras.Sequential([keras.Input((3,)), layers.Dense(2)])
    ema = rx.train.ExponentialMovingAverage(0.9)

    def move() -> None:
        strategy.run(lambda: ema.apply(model.trainable_variables))

    step = rx.function(move) if compiled else move
    first = model.get_weights()
    step()
    model.set_weights([each + 1 for each in first])
    step()
    for value, variable in zip(first, model.trainable_variables, strict=True):
        variable.assign(ema.average(variable))
        np.testing.assert_allclose(variable.numpy(), value + 0.1, rtol=1e-5)


def test_moving_averages_of_a_model_outside_of_scopes():
    model = keras.Sequential([keras.Input((3,)), layers.Dense(2)])
    ema = rx.train.ExponentialMovingAverage(0.9)
    assert ema.average(model.trainable_variables[0]) is None
    ema.apply(model.trainable_variables)
    first = model.get_weights()
    model.set_weights([each + 1 for each in first])
    ema.apply(model.trainable_variables)
    average: Any = ema.average(model.trainable_variables[0])
    np.testing.assert_allclose(average.numpy(), first[0] + 0.1, rtol=1e-5)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_a_batch_normalization_outside_of_scopes_keeps_its_averages(compiled: bool):
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    norm = layers.BatchNormalization(momentum=0.5, center=False)
    model = keras.Sequential([keras.Input((3,)), norm])

    def loss() -> Any:
        return jnp.sum(model(x, training=True) ** 2)

    for _ in range(2):
        rx.value_and_grad(loss, model.trainable_variables, compile=compiled)
    np.testing.assert_allclose(norm.moving_mean, x.mean(0) * 0.75, rtol=1e-5)
