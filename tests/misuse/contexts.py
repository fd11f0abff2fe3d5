"""Calls in the wrong context, and mixed strategies."""

import pickle

import jax.numpy as jnp

from tests.misuse.table import (
    context,
    errors,
    misuse,
    replica_id,
    rx,
    two_replicas,
    variable,
)


@misuse(errors.WrongContextError, r"replica 0 of 2", r"all_reduce\('SUM', x\)")
def reduce_in_replica_context(strategy):
    strategy.run(lambda: strategy.reduce("SUM", jnp.ones(2), axis=None))


@misuse(errors.WrongContextError, r"strategy\.gather.*replica 0 of 2", r"all_gather\(x")
def gather_in_replica_context(strategy):
    strategy.run(lambda: strategy.gather(jnp.ones(2), axis=0))


@misuse(errors.WrongContextError, r"strategy\.run.*replica 0 of 2", r"function itself")
def run_in_replica_context(strategy):
    strategy.run(lambda: strategy.run(lambda: 1.0))


@misuse(errors.WrongContextError, r"scope\(\).*replica 0 of 2", r"leave the scope out")
def scope_in_replica_context(strategy):
    def step():
        with strategy.scope():
            pass

    strategy.run(step)


@misuse(errors.WrongContextError, r"from_function.*replica 0", r"make the value itself")
def make_values_in_replica_context(strategy):
    strategy.run(lambda: strategy.experimental_distribute_values_from_function(lambda ctx: 1.0))


@misuse(errors.WrongContextError, r"extended\.reduce_to.*replica 0", r"all_reduce")
def reduce_to_in_replica_context(strategy):
    strategy.run(lambda: strategy.extended.reduce_to("SUM", jnp.ones(2), "CPU:0"))


@misuse(errors.WrongContextError, r"batch_reduce_to.*replica 0", r"all_reduce")
def batch_reduce_to_in_replica_context(strategy):
    strategy.run(lambda: strategy.extended.batch_reduce_to("SUM", [(jnp.ones(2), "CPU:0")]))


@misuse(errors.WrongContextError, r"broadcast_to.*replica 0", r"after strategy\.run")
def broadcast_to_in_replica_context(strategy):
    strategy.run(lambda: strategy.extended.broadcast_to(jnp.ones(2), "CPU:0"))


@misuse(ValueError, r"extended\.update.*PerReplica", r"extended\.reduce_to\('SUM'")
def update_in_replica_context_with_other_values(strategy):
    v = variable(strategy)

    def step():
        x = 1.0 + replica_id()
        strategy.extended.update(v, lambda each, x: each.assign(x), args=(x,))

    strategy.run(step)


@misuse(errors.WrongContextError, r"update_non_slot.*replica 0", r"merge_call\(merge_fn")
def update_non_slot_in_replica_context(strategy):
    strategy.run(lambda: strategy.extended.update_non_slot("CPU:0", lambda: 1))


@misuse(errors.WrongContextError, r"non_slot_devices.*replica 0", r"merge_call\(merge_fn")
def non_slot_devices_in_replica_context(strategy):
    strategy.run(lambda: strategy.extended.non_slot_devices([]))


@misuse(errors.WrongContextError, r"call_for_each_replica.*replica 0", r"function itself")
def call_for_each_replica_in_replica_context(strategy):
    strategy.run(lambda: strategy.extended.call_for_each_replica(lambda: 1))


@misuse(errors.WrongContextError, r"merge_call of replica 1.*outside", r"again where")
def merge_call_after_return(strategy):
    contexts = []
    strategy.run(lambda: contexts.append(context()))
    contexts[1].merge_call(lambda s: None)


@misuse(errors.WrongContextError, r"merge_call of replica 0.*outside", r"again where")
def merge_call_in_cross_replica_context(strategy):
    def step():
        mine = context()
        mine.merge_call(lambda s: mine.merge_call(lambda s: None))

    strategy.run(step)


@misuse(errors.WrongContextError, r"all_reduce of replica 0.*outside", r"again where")
def all_reduce_in_scope(strategy):
    contexts = []
    strategy.run(lambda: contexts.append(context()))
    with strategy.scope():
        contexts[0].all_reduce("SUM", 1.0)


@misuse(errors.WrongContextError, r"made by hand", r"returns inside strategy\.run")
def replica_context_made_by_hand(strategy):
    with rx.distribute.ReplicaContext(strategy, 0) as mine:
        mine.all_reduce("SUM", 1.0)


@misuse(errors.WrongContextError, r"mixing different strategies", r"Leave the scope")
def scope_in_the_scope_of_another(strategy):
    with strategy.scope(), two_replicas().scope():
        pass


@misuse(errors.WrongContextError, r"mixing different strategies", r"Leave the scope")
def run_in_the_scope_of_another(strategy):
    with strategy.scope():
        two_replicas().run(lambda: 1.0)


@misuse(errors.WrongContextError, r"mixing different strategies", r"Leave the scope")
def default_scope_in_the_scope_of_another(strategy):
    default = rx.distribute.get_strategy()
    with strategy.scope(), default.scope():
        pass


@misuse(errors.WrongContextError, r"mixing different strategies", r"one strategy object")
def reduce_of_another_in_a_replica(strategy):
    other = two_replicas()
    strategy.run(lambda: other.reduce("SUM", jnp.ones(1), axis=None))


@misuse(errors.WrongContextError, r"left more often", r"with strategy\.scope\(\)")
def scope_left_twice(strategy):
    scope = strategy.scope()
    with scope:
        pass
    scope.__exit__(None, None, None)


@misuse(errors.WrongContextError, r"inside a strategy scope", r"at the top level")
def set_strategy_in_scope(strategy):
    with strategy.scope():
        rx.distribute.experimental_set_strategy(strategy)


@misuse(errors.WrongContextError, r"experimental_set_strategy", r"at the top level")
def set_strategy_in_a_replica(strategy):
    strategy.run(lambda: rx.distribute.experimental_set_strategy(None))


@misuse(TypeError, r"got 'mirrored'", r"Pass for example rx\.distribute\.Mirrored")
def set_strategy_to_a_name(strategy):
    rx.distribute.experimental_set_strategy("mirrored")


@misuse(TypeError, r"StrategyExtended subclass; got", r"MirroredStrategy\(\)")
def strategy_of_something_else(strategy):
    rx.distribute.Strategy("mirrored")


@misuse(TypeError, r"cannot be pickled", r"Make a new one in the other process")
def pickle_a_strategy(strategy):
    pickle.dumps(strategy)
