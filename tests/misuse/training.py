"""Gradients, optimizers and losses."""

from typing import Any

import jax.numpy as jnp
import optax

from tests.misuse.table import errors, misuse, replica_id, rx, two_replicas, variable


def gradients_of_a_square(strategy: Any) -> tuple[Any, Any]:
    """A variable and its gradient on one replica."""
    w = variable(strategy, jnp.ones(3))
    return w, jnp.ones(3)


def sgd() -> Any:
    return rx.Optimizer(optax.sgd(0.1))


@misuse(TypeError, r"got float32\[\]", r"rx\.value_and_grad\(lambda: loss\(x, y\), variabl")
def gradient_of_a_number(strategy):
    w = variable(strategy)
    rx.value_and_grad(w * w, [w])


@misuse(TypeError, r"`variables` holds float32\[3\]", r"use jax\.value_and_grad")
def gradient_by_an_array(strategy):
    x = jnp.ones(3)
    rx.value_and_grad(lambda: jnp.sum(x), [x])


@misuse(TypeError, r"must be a scalar; it has shape \(3,\)", r"compute_average_loss\(")
def loss_per_example(strategy):
    w = variable(strategy, jnp.ones(3))
    strategy.run(lambda: rx.value_and_grad(lambda: w * w, [w]))


@misuse(TypeError, r"must be a scalar; it has shape \(3,\)", r"compute_average_loss\(")
def loss_per_example_compiled(strategy):
    w = variable(strategy, jnp.ones(3))
    strategy.run(lambda: rx.value_and_grad(lambda: w * w, [w], compile=True))


@misuse(TypeError, r"floating-point number; it is int32", r"x\.astype\(jnp\.float32\)")
def integer_loss(strategy):
    w = variable(strategy)
    rx.value_and_grad(lambda: jnp.int32(w), [w])


@misuse(TypeError, r"returned None", r"Return the loss")
def loss_without_return(strategy):
    w = variable(strategy)

    def loss():
        _ = w * w

    rx.value_and_grad(loss, [w])


@misuse(TypeError, r"returned.*dict|dict", r"(?i)has_aux|scalar")
def loss_in_a_dict(strategy):
    w = variable(strategy)
    rx.value_and_grad(lambda: {"loss": w * w}, [w])


@misuse(TypeError, r"returned a tuple", r"Pass has_aux=True")
def auxiliary_result_without_has_aux(strategy):
    w = variable(strategy)
    rx.value_and_grad(lambda: (w * w, jnp.ones(3)), [w])


@misuse(TypeError, r"tuple", r"Pass has_aux=True")
def auxiliary_scalar_without_has_aux(strategy):
    w = variable(strategy)
    rx.value_and_grad(lambda: (w * w, w + 1.0), [w])


@misuse(TypeError, r"has_aux=True.*it returned", r"must return a pair \(loss, aux\)")
def has_aux_without_an_auxiliary_result(strategy):
    w = variable(strategy)
    rx.value_and_grad(lambda: w * w, [w], has_aux=True)


@misuse(TypeError, r"got 0\.1", r"an optax transformation such as optax\.adam\(1e-3\)")
def optimizer_of_a_learning_rate(strategy):
    rx.Optimizer(0.1)


@misuse(TypeError, r"got <function adam", r"optax\.adam\(1e-3\)")
def optimizer_of_a_function(strategy):
    rx.Optimizer(optax.adam)


@misuse(TypeError, r"got float32\[3\]", r"Make the parameters with rx\.Variable")
def optimizer_of_arrays(strategy):
    sgd().build([jnp.ones(3)])


@misuse(ValueError, r"no variables to optimize", r"Pass at least one rx\.Variable")
def optimizer_of_nothing(strategy):
    sgd().build([])


@misuse(ValueError, r"'new:0' is not among them", r"optimizer\.build\(variables\)")
def optimizer_of_an_unknown_variable(strategy):
    w, gradient = gradients_of_a_square(strategy)
    new = variable(strategy, jnp.ones(3), name="new")
    optimizer = sgd()
    optimizer.build([w])
    strategy.run(lambda: optimizer.apply_gradients([(gradient, new)]))


@misuse(ValueError, r"given twice", r"Add its gradients up and pass it once")
def variable_given_twice(strategy):
    w, gradient = gradients_of_a_square(strategy)
    sgd().apply_gradients([(gradient, w), (gradient, w)])


@misuse(ValueError, r"No gradients provided.*w:0", r"loss read.* trainable")
def no_gradient_at_all(strategy):
    w = variable(strategy, name="w")
    optimizer = sgd()
    strategy.run(lambda: optimizer.apply_gradients([(None, w)]))


@misuse(ValueError, r"shape \(2,\).*shape \(3,\)", r"Pair each gradient with its own variab")
def gradient_of_another_shape(strategy):
    w, _ = gradients_of_a_square(strategy)
    optimizer = sgd()
    strategy.run(lambda: optimizer.apply_gradients([(jnp.ones(2), w)]))


@misuse(ValueError, r"None on replicas \[1\]", r"use a gradient of zeros")
def gradient_missing_on_one_replica(strategy):
    w, gradient = gradients_of_a_square(strategy)
    optimizer = sgd()
    strategy.run(lambda: optimizer.apply_gradients([((gradient, None)[replica_id()], w)]))


@misuse(ValueError, r"replica 0: \['a:0'\].*replica 1: \['b:0'\]", r"same variables")
def different_variables_on_the_replicas(strategy):
    pair = [variable(strategy, name=name) for name in "ab"]
    optimizer = sgd()
    strategy.run(lambda: optimizer.apply_gradients([(jnp.ones(()), pair[replica_id()])]))


@misuse(errors.ReplicaMismatchError, r"apply_gradients.*returned", r"take part")
def update_skipped_by_one_replica(strategy):
    w, gradient = gradients_of_a_square(strategy)
    optimizer = sgd()

    def step():
        if replica_id() == 0:
            optimizer.apply_gradients([(gradient, w)])

    strategy.run(step)


@misuse(TypeError, r"names instead of variables", r"optimizer\.apply\(gradients, variables\)")
def pairs_of_two_dictionaries(strategy):
    with strategy.scope():
        variables = {"w": rx.Variable(1.0)}
        optimizer = rx.Optimizer(optax.sgd(0.1))
    strategy.run(lambda: optimizer.apply_gradients(zip({"w": 1.0}, variables)))


@misuse(TypeError, r"apply_gradients takes \(gradient, variable\) pairs", r"zip\(gradients,")
def gradients_without_variables(strategy):
    _, gradient = gradients_of_a_square(strategy)
    sgd().apply_gradients([gradient])


@misuse(TypeError, r"apply_gradients takes \(gradient, variable\) pairs", r"zip\(gradients,")
def one_gradient_without_a_list(strategy):
    sgd().apply_gradients(3.0)


@misuse(
    ValueError,
    r"The gradients are .* but the variables are",
    r"structure that rx\.value_and_grad ret",
)
def more_gradients_than_variables(strategy):
    w, gradient = gradients_of_a_square(strategy)
    sgd().apply([gradient, gradient], [w])


@misuse(ValueError, r"must belong to one strategy", r"all in the same `with strategy\.scope")
def variables_of_two_strategies(strategy):
    sgd().build([variable(strategy), variable(two_replicas())])


@misuse((RuntimeError, ValueError), r"w:0", r"with strategy\.scope\(\)")
def train_a_variable_made_outside_of_the_scope(strategy):
    w = rx.Variable(1.0, name="w")
    optimizer = sgd()
    strategy.run(lambda: optimizer.apply_gradients([(jnp.ones(()), w)]))


@misuse(AttributeError, r"is fixed inside its optax", r"optax\.inject_hyperparams\(optax\.")
def learning_rate_that_is_not_injected(strategy):
    optimizer = sgd()
    optimizer.build([variable(strategy)])
    optimizer.learning_rate = 0.01


@misuse(AttributeError, r"has no state yet", r"Call optimizer\.build\(variables\) first")
def learning_rate_before_the_first_step(strategy):
    rx.Optimizer(optax.inject_hyperparams(optax.sgd)(learning_rate=0.1)).learning_rate  # noqa: B018


@misuse(errors.WrongContextError, r"compute_average_loss.*cross-replica", r"strategy\.run")
def average_loss_in_scope(strategy):
    with strategy.scope():
        rx.nn.compute_average_loss(jnp.ones(4))


@misuse(TypeError, r"`global_batch_size`.*got 8\.0", r"must be a whole number")
def fractional_batch_size(strategy):
    rx.nn.compute_average_loss(jnp.ones(4), global_batch_size=8.0)


@misuse(ValueError, r"`global_batch_size`.*got -8", r"must not be negative")
def negative_batch_size(strategy):
    rx.nn.compute_average_loss(jnp.ones(4), global_batch_size=-8)


@misuse(
    ValueError, r"`per_example_loss` is a scalar", r"(?i)leave out the jnp.mean|global_batch_size="
)
def average_of_a_scalar_loss(strategy):
    strategy.run(lambda: rx.nn.compute_average_loss(jnp.ones(())))


@misuse(ValueError, r"`sample_weight` of shape \(3,\).*\(4,\)", r"Pass one weight per exampl")
def loss_weights_that_do_not_fit(strategy):
    rx.nn.compute_average_loss(jnp.ones(4), sample_weight=jnp.ones(3), global_batch_size=4)


@misuse(TypeError, r"`per_example_loss` must be numbers; got booleans", r"x\.astype\(")
def average_of_booleans(strategy):
    rx.nn.compute_average_loss(jnp.ones(4) > 0, global_batch_size=4)


@misuse(errors.WrongContextError, r"scale_regularization_loss.*cross-replica", r"strategy\.")
def regularization_loss_in_scope(strategy):
    with strategy.scope():
        rx.nn.scale_regularization_loss(jnp.ones(4))


@misuse(ValueError, r"`reduction`.*got 'MAX'", r"must be 'SUM' or 'MEAN'")
def accumulate_by_an_unknown_reduction(strategy):
    w = variable(strategy)
    rx.accumulate_gradients(lambda x: jnp.sum(x) * w, [w], jnp.ones(4), 2, reduction="MAX")


@misuse(ValueError, r"\(4,\), \(3,\)", r"same number of rows")
def micro_batches_of_different_lengths(strategy):
    w = variable(strategy)
    batch = (jnp.ones(4), jnp.ones(3))
    rx.accumulate_gradients(lambda x: jnp.sum(x[0]) * w, [w], batch, steps=2)


@misuse(TypeError, r"got 3\.0", r"a function")
def accumulate_a_number(strategy):
    rx.accumulate_gradients(3.0, [variable(strategy)], jnp.ones(4), steps=2)


# ------------------------------------------------------------------ random numbers


@misuse(ValueError, r"got \(-1,\)", r"sizes .* are 0 or more")
def random_numbers_of_a_negative_size(strategy):
    rx.random.Generator(1).normal((-1,))


@misuse(TypeError, r"shape of random numbers.*got None", r"a list of sizes, \[\] for one")
def random_numbers_of_no_shape(strategy):
    rx.random.Generator(1).normal(None)


@misuse(TypeError, r"shape of random numbers.*got \(2\.5,\)", r"a list of sizes")
def random_numbers_of_a_broken_size(strategy):
    rx.random.Generator(1).uniform((2.5,))


@misuse(ValueError, r"got \(-1,\)", r"sizes .* are 0 or more")
def split_a_generator_into_less_than_none(strategy):
    rx.random.Generator(1).split(-1)


@misuse(ValueError, r"minval=3 and maxval=1", r"`minval` must be not above `maxval`")
def random_numbers_between_limits_in_the_wrong_order(strategy):
    rx.random.Generator(1).uniform((2,), 3, 1)


@misuse(ValueError, r"minval=2 and maxval=2", r"`minval` must be below `maxval`")
def random_integers_from_no_range(strategy):
    rx.random.Generator(1).uniform((2,), 2, 2, dtype="int32")


@misuse(ValueError, r"given twice to Optimizer\.build", r"Pass each one once")
def build_with_a_variable_twice(strategy):
    v = variable(strategy)
    rx.Optimizer(optax.sgd(0.1)).build([v, v])


@misuse(TypeError, r"`per_example_loss`.*got 'x'", r"must be an array of numbers")
def average_loss_of_a_text(strategy):
    rx.nn.compute_average_loss("x")


@misuse(ValueError, r"`regularization_loss`.*got None", r"must be an array of numbers")
def scale_no_regularization_loss(strategy):
    rx.nn.scale_regularization_loss(None)
