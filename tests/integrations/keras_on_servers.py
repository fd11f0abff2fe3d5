"""Keras under a strategy with two workers and two servers, beside Keras on one device: printed.

One program for many checks, because a cluster takes seconds to start.
"""

# A program: what it does is checked by its test.
# pyright: basic, reportOptionalMemberAccess=false, reportIndexIssue=false, reportArgumentType=false
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false

import json
import os
import signal
import sys
import tempfile

os.environ["KERAS_BACKEND"] = "jax"
import jax.numpy as jnp
import keras
import numpy as np

import replicax as rx

facts = {}
partitioners = rx.distribute.experimental.partitioners
RNG = np.random.default_rng(0)
X = RNG.normal(size=(48, 4)).astype(np.float32)
Y = (X @ np.float32([[1], [-2], [3], [0.5]])).astype(np.float32)


def error(fn):
    try:
        fn()
    except Exception as found:
        return [type(found).__name__, str(found)]
    return None


def close(found, expected, rtol=2e-5):
    return bool(
        all(np.allclose(a, b, rtol=rtol, atol=1e-6) for a, b in zip(found, expected, strict=True))
    )


def make_model():
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(8, activation="relu", kernel_constraint="max_norm"),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(1, kernel_regularizer="l2"),
        ]
    )


def main():
    resolver = rx.distribute.cluster_resolver.RayClusterResolver(workers=2, ps=2)
    strategy = rx.distribute.ParameterServerStrategy(
        resolver, variable_partitioner=partitioners.FixedShardsPartitioner(2)
    )
    coordinator = rx.distribute.coordinator.ClusterCoordinator(strategy)
    in_a_function(strategy, coordinator)
    fit_one_epoch(strategy)
    seeds(strategy, coordinator)
    if sys.argv[2:] == ["everything"]:
        everything(strategy, coordinator)
    coordinator.close()


def everything(strategy, coordinator):
    custom_loop(strategy, coordinator)
    optimizers(strategy, coordinator)
    fits(strategy)
    rows_of_a_layer(strategy, coordinator)
    mistakes(strategy, coordinator)
    asynchronous(strategy, coordinator)


def small_model():
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])


def in_a_function(strategy, coordinator):
    """A step, in a function that is scheduled, and the same step here."""
    found = []
    for where in (rx.distribute.OneDeviceStrategy("CPU:0"), strategy):
        with where.scope():
            model = small_model()
            optimizer = keras.optimizers.SGD(0.1)
            metric = keras.metrics.MeanAbsoluteError()
        step = step_of(model, optimizer, metric, rx.function)
        loss = coordinator.schedule(step, (X, Y)).fetch() if where is strategy else step(X, Y)
        found.append([loss, metric.result(), *model.get_weights()])
    facts["in_a_function"] = close(*found)


def fit_one_epoch(strategy):
    found = []
    for where in (rx.distribute.OneDeviceStrategy("CPU:0"), strategy):
        with where.scope():
            model = small_model()
            model.compile("sgd", "mse")
        history = model.fit(X, Y, batch_size=48, verbose=0).history
        found.append([history["loss"], *model.get_weights()])
    facts["fit_one_epoch"] = close(*found)


def seeds(strategy, coordinator):
    """Workers that read the state of a seed generator at the same moment draw other numbers."""
    with strategy.scope():
        generator = keras.random.SeedGenerator(1)
    before = np.asarray(generator.state.value)
    drawn = rx.function(lambda: keras.random.uniform((4,), seed=generator))
    index = rx.distribute.coordinator.experimental_get_current_worker_index

    def draw():
        generator.state.assign(before)  # as if no other worker had drawn
        first = np.asarray(drawn())
        return index(), first.tolist(), np.asarray(drawn()).tolist()

    of = {}
    while len(of) < 2:  # until both workers have drawn
        values = [coordinator.schedule(draw) for _ in range(4)]
        of |= {worker: numbers for worker, *numbers in coordinator.fetch(values)}
    facts["different_numbers"] = len({tuple(numbers) for pair in of.values() for numbers in pair})
    generator.state.assign(before)
    for _ in range(20):
        coordinator.schedule(drawn)
    coordinator.join()
    facts["seeds_counted"] = (np.asarray(generator.state.value) - before).tolist()


def step_of(model, optimizer, metric, compile):
    def step(x, y):
        def loss_fn():
            predicted = model(x, training=True)
            return jnp.mean((predicted - y) ** 2) + sum(model.losses), predicted

        (loss, predicted), gradients = rx.value_and_grad(
            loss_fn, model.trainable_variables, has_aux=True
        )
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        metric.update_state(y, predicted)
        return loss

    return compile(step)


def custom_loop(strategy, coordinator):
    alone = rx.distribute.OneDeviceStrategy("CPU:0")
    found = {}
    for name, compile in (("compiled", rx.function), ("eager", lambda fn: fn)):
        for where in (alone, strategy):
            with where.scope():
                model = make_model()
                optimizer = keras.optimizers.Adam(0.05, clipnorm=0.5)
                metric = keras.metrics.MeanAbsoluteError()
            step = step_of(model, optimizer, metric, compile)
            count = 3 if name == "compiled" else 1
            if where is alone:
                losses = [float(step(X, Y)) for _ in range(count)]
            else:
                losses = [float(coordinator.schedule(step, (X, Y)).fetch()) for _ in range(count)]
            found[where is alone] = (losses, float(metric.result()), model, optimizer)
        facts[f"{name}_losses"] = close(found[False][0], found[True][0])
        facts[f"{name}_metric"] = close([found[False][1]], [found[True][1]])
        facts[f"{name}_weights"] = close(
            found[False][2].get_weights(), found[True][2].get_weights()
        )
        slots = [[np.asarray(v.value) for v in found[side][3].variables] for side in (False, True)]
        facts[f"{name}_slots"] = close(*slots)
    model, optimizer = found[False][2:]
    kernel = model.layers[0].kernel.__rx_variable__
    slot = optimizer.variables[2].__rx_variable__
    facts["slots_live_with_variables"] = [
        [piece.device for piece in each.variables] for each in (kernel, slot)
    ]
    facts["iterations"] = int(optimizer.iterations.value)
    checkpoints(model, optimizer)


def checkpoints(model, optimizer):
    with tempfile.TemporaryDirectory() as folder:
        before = [np.asarray(v.value) for v in (*model.variables, *optimizer.variables)]
        checkpoint = rx.train.Checkpoint(model=model, optimizer=optimizer)
        path = checkpoint.save(f"{folder}/saved")
        model.save_weights(f"{folder}/model.weights.h5")
        for variable in model.variables:
            variable.assign(np.zeros(variable.shape))
        checkpoint.restore(path)
        after = [np.asarray(v.value) for v in (*model.variables, *optimizer.variables)]
        facts["restored"] = close(after, before, 0)
        model.load_weights(f"{folder}/model.weights.h5")
        facts["loaded"] = close(model.get_weights(), before[: len(model.variables)], 0)


def optimizers(strategy, coordinator):
    kinds = keras.optimizers
    decay = kinds.schedules.ExponentialDecay(0.1, 2, 0.5)
    some = {
        "momentum": lambda: kinds.SGD(0.1, momentum=0.9, nesterov=True),
        "adamw": lambda: kinds.AdamW(0.1, weight_decay=0.1),
        "adam of a schedule": lambda: kinds.Adam(decay),
        "accumulated": lambda: kinds.Adam(0.1, use_ema=True, gradient_accumulation_steps=2),
    }
    value = RNG.normal(size=(5, 2)).astype(np.float32)
    gradients = [RNG.normal(size=(5, 2)).astype(np.float32) for _ in range(3)]
    with strategy.scope():
        sides = {name: (keras.Variable(value, name="w"), make()) for name, make in some.items()}

    def apply(name, gradient):
        variable, optimizer = sides[name]
        optimizer.apply_gradients([(jnp.asarray(gradient), variable)])

    wrong = []
    for name, make in some.items():
        variable, optimizer = keras.Variable(value, name="w"), make()
        optimizer.build([variable])
        ours, state = [variable.value], [v.value for v in optimizer.variables]
        for gradient in gradients:
            coordinator.schedule(apply, (name, gradient)).fetch()
            ours, state = optimizer.stateless_apply(state, [jnp.asarray(gradient)], ours)
        expected = [*ours, *state]
        found = [np.asarray(v.value) for v in (sides[name][0], *sides[name][1].variables)]
        if not close(found, expected):
            wrong.append(name)
    facts["wrong_optimizers"] = wrong


def fits(strategy):
    def fit(model, x, y=None, **kwargs):
        model.compile("adam", "mse", metrics=["mae"])
        # One step in an epoch, at whose end it is waited for: the numbers are those of one device.
        given = dict(batch_size=48, epochs=2, shuffle=False, verbose=0, validation_data=(X, Y))
        return model.fit(x, y, **{**given, **kwargs}).history

    alone = make_model()
    expected = fit(alone, X, Y)
    with strategy.scope():
        model = make_model()
    found = fit(model, X, Y)
    facts["history_names"] = list(found) == list(expected)
    facts["history"] = close(
        [found[name] for name in expected], [expected[name] for name in expected], 2e-4
    )
    facts["evaluated"] = close(
        model.evaluate(X, Y, verbose=0), alone.evaluate(X, Y, verbose=0), 2e-4
    )
    facts["predicted"] = close([model.predict(X, verbose=0)], [alone.predict(X, verbose=0)], 2e-3)
    on_batch = [each.train_on_batch(X, Y, return_dict=True) for each in (model, alone)]
    facts["on_batch"] = close(*[list(logs.values()) for logs in on_batch], 2e-3)

    def dataset():
        return rx.data.Dataset.from_tensor_slices((X, Y)).repeat().batch(16)

    with strategy.scope():
        model = make_model()
    found = fit(model, dataset, batch_size=None, steps_per_epoch=10, validation_data=None)
    facts["of_workers"] = [
        found["loss"][1] < found["loss"][0],
        int(model.optimizer.iterations.value),
    ]
    batches = rx.data.Dataset.from_tensor_slices((X, Y)).batch(16)
    fit(model, batches, batch_size=None, validation_data=None)
    facts["of_a_dataset"] = int(model.optimizer.iterations.value)
    facts["no_steps"] = error(lambda: fit(model, dataset, batch_size=None))
    facts["predict_of_workers"] = error(lambda: model.predict(dataset))


def rows_of_a_layer(strategy, coordinator):
    """A look-up in the table of a Keras layer moves and updates rows."""
    with strategy.scope():
        layer = keras.layers.Embedding(100_000, 16)
        layer.build()
        optimizer = keras.optimizers.Adagrad(0.1)
    before = np.asarray(layer.embeddings.value)
    ids = np.array([[5, 99_999], [5, 60_000]])

    def step(ids):
        from replicax._src.parameter_servers._servers import Servers

        plain, moved = Servers.ask, []

        def ask(self, method, arguments):
            answer = plain(self, method, arguments)
            moved.append(
                sum(map(len, answer.values())) + sum(len(a[0]) for a in arguments.values())
            )
            return answer

        Servers.ask = ask
        try:
            rows = rx.nn.embedding_lookup(layer.embeddings, ids)
            _, (gradient,) = rx.value_and_grad(lambda: jnp.sum(rows.value()), [rows])
            optimizer.apply_gradients([(gradient, rows)])
            rx.nn.embedding_lookup(layer.embeddings, ids).value()  # with it, the update goes
        finally:
            Servers.ask = plain
        return moved

    moved = coordinator.schedule(step, (ids,)).fetch()
    changed = np.flatnonzero(np.any(np.asarray(layer.embeddings.value) != before, axis=1))
    facts["rows_changed"] = changed.tolist()
    facts["bytes_are_of_rows"] = sum(moved) < 10_000  # the table has 6,400,000


class OwnStep(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)
        self.others = {"last": [keras.layers.Dropout(0.5)]}

    def call(self, x, training=False):
        return self.others["last"][0](self.dense(x), training=training)

    def train_step(self, data):
        return {**super().train_step(data), "mine": jnp.float32(7)}


class StateStep(keras.Sequential):
    def train_step(self, state, data):
        return super().train_step(state, data)


def mistakes(strategy, coordinator):
    with strategy.scope():
        model = StateStep([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        adafactor = keras.optimizers.Adafactor(0.1)
        kernel = model.layers[0].kernel
        scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1))
        own = OwnStep()
        own.compile("sgd", "mse")
    facts["state_step"] = error(lambda: model.fit(X, Y, verbose=0))
    history = own.fit(X, Y, verbose=0, epochs=2, batch_size=48).history
    facts["own_step"] = [history["mine"], sorted(history)]
    facts["bad_data"] = error(lambda: own.fit(lambda: 3, steps_per_epoch=2, verbose=0))
    facts["after_bad_data"] = coordinator.schedule(int).fetch()

    def apply(optimizer):
        optimizer.apply_gradients([(jnp.ones(kernel.shape), kernel)])

    coordinator.schedule(apply, (adafactor,))
    facts["adafactor"] = error(coordinator.join)
    facts["scaled"] = error(lambda: coordinator.schedule(apply, (scaled,)))
    outside = keras.Variable(1.0, name="outside")
    facts["outside"] = error(lambda: coordinator.schedule(lambda x: model(x) + outside, (X,)))
    coordinator.schedule(lambda: keras.layers.Dense(1)(X))
    facts["made_on_worker"] = error(coordinator.join)


def asynchronous(strategy, coordinator):
    import ray

    with strategy.scope():
        model = make_model()
        optimizer = keras.optimizers.SGD(0.01)
        metric = keras.metrics.MeanAbsoluteError()
    step = step_of(model, optimizer, metric, rx.function)
    for _ in range(60):
        coordinator.schedule(step, (X, Y))
    coordinator.join()
    facts["counted"] = [int(optimizer.iterations.value), float(metric.count.value) / len(X)]
    with strategy.scope():
        model = make_model()
        model.compile(keras.optimizers.SGD(0.01), "mse", metrics=["mae"])
    pid = ray.get(strategy.extended.workers[0].ready.remote())

    class Kill(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 1:
                os.kill(pid, signal.SIGKILL)

    history = model.fit(X, Y, batch_size=8, epochs=4, verbose=0, callbacks=[Kill()]).history
    facts["though_killed"] = [
        int(model.optimizer.iterations.value),
        history["loss"][-1] < history["loss"][0],
    ]


try:
    main()
finally:
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump(facts, file)
