"""What objects of TensorFlow are, and what becomes of their methods.

Names are written as in `_table.py`. `_objects.py` asks what an expression is, `_lookup.py` what is
said of methods.
"""

from replicax._src.cli.migrate._rows import kinds, pairs, said

# The class that has the methods of such an object.
CLASSES: dict[str, str] = {
    **{
        name.rpartition(".")[2]: name
        for name in """rx.Variable rx.data.Dataset rx.data.Iterator rx.data.Options
        rx.distribute.DistributedDataset rx.distribute.InputContext rx.distribute.ReplicaContext
        rx.distribute.Strategy rx.distribute.StrategyExtended
        rx.distribute.experimental.PreemptionCheckpointHandler rx.experimental.Optional
        rx.io.TFRecordWriter rx.summary.SummaryWriter rx.train.Checkpoint rx.train.CheckpointManager
        keras.Model keras.layers.Layer keras.metrics.Metric keras.optimizers.Optimizer""".split()
    },
    "InputIterator": "rx.distribute.DistributedIterator",
    "KerasVariable": "keras.Variable",
    "Tensor": "jax.Array",
}

# What a call gives, by the name in replicax or Keras; in TensorFlow, if there is none.
RETURNS = kinds(
    {
        "Dataset": """rx.data.Dataset.* rx.data.FixedLengthRecordDataset rx.data.TFRecordDataset
        rx.data.TextLineDataset rx.data.Dataset tfds.load""",
        "Variable": "rx.Variable",
        "TFRecordWriter": "rx.io.TFRecordWriter",
        "Metric": "rx.metrics.* keras.metrics.*",
        "SummaryWriter": "rx.summary.create_file_writer rx.summary.create_noop_writer",
        "Checkpoint": "rx.train.Checkpoint",
        "CheckpointManager": "rx.train.CheckpointManager",
        "Strategy": """rx.distribute.MirroredStrategy rx.distribute.MultiWorkerMirroredStrategy
        rx.distribute.OneDeviceStrategy rx.distribute.Strategy rx.distribute.TPUStrategy
        rx.distribute.experimental.CentralStorageStrategy rx.distribute.get_strategy
        rx.distribute.ParameterServerStrategy rx.distribute.experimental.ParameterServerStrategy""",
        "StrategyExtended": "rx.distribute.StrategyExtended",
        "ReplicaContext": "rx.distribute.ReplicaContext rx.distribute.get_replica_context",
        "InputContext": "rx.distribute.InputContext",
        "Options": "rx.data.Options",
        "PreemptionCheckpointHandler": "rx.distribute.experimental.PreemptionCheckpointHandler",
        "GradientTape": "tf.GradientTape",
        "ClusterCoordinator": """rx.distribute.coordinator.ClusterCoordinator
        rx.distribute.experimental.coordinator.ClusterCoordinator""",
        "Session": "tf.InteractiveSession tf.Session tf.train.MonitoredTrainingSession",
        "Layer": "keras.Layer keras.layers.*",
        "Model": "keras.Model keras.Sequential keras.applications.* keras.models.*",
        "KerasVariable": "keras.Variable",
        "Loss": "keras.losses.*",
        "Optimizer": """keras.mixed_precision.LossScaleOptimizer keras.optimizers.*
        tf.train.AdamOptimizer tf.train.GradientDescentOptimizer tf.train.MomentumOptimizer
        tf.train.RMSPropOptimizer""",
    }
)

# What a method or attribute gives; `*` is any other one.
METHOD_RETURNS = kinds(
    {
        "Dataset": "Dataset.* Strategy.experimental_make_numpy_dataset",
        "Iterator": "Dataset.make_one_shot_iterator",
        "Optional": "InputIterator.get_next_as_optional Iterator.get_next_as_optional",
        "Optimizer": "Model.optimizer",
        "KerasVariable": "Optimizer.iterations Optimizer.learning_rate Optimizer.lr",
        "DistributedDataset": """Strategy.distribute_datasets_from_function
        Strategy.experimental_distribute_dataset
        Strategy.experimental_distribute_datasets_from_function""",
        "StrategyExtended": "Strategy.extended",
        "InputIterator": "Strategy.make_dataset_iterator Strategy.make_input_fn_iterator",
        "Strategy": "ReplicaContext.strategy",
        "Shape": "Tensor.get_shape Variable.shape",
    }
)

# What an item of it is: the data sets of tfds.load, v[0].
ITEMS: dict[str, str] = {"Dataset": "Dataset", "Variable": "VariableSlice"}

# Methods that only such an object has: they tell what it is.
TELLING = kinds(
    {
        "ReplicaContext": "all_reduce merge_call replica_id_in_sync_group",
        "StrategyExtended": """batch_reduce_to call_for_each_replica colocate_vars_with
        experimental_run_steps_on_iterator update_non_slot""",
        "Strategy": """distribute_datasets_from_function experimental_distribute_dataset
        experimental_distribute_datasets_from_function experimental_distribute_values_from_function
        experimental_local_results experimental_make_numpy_dataset experimental_run
        experimental_run_v2 make_dataset_iterator make_input_fn_iterator num_replicas_in_sync
        update_config_proto""",
        "Dataset": """make_one_shot_iterator make_initializable_iterator as_numpy_iterator
        padded_batch""",
        "InputContext": "get_per_replica_batch_size input_pipeline_id",
        "Layer": "add_weight",
        "Optimizer": "apply_gradients get_scaled_loss get_unscaled_gradients",
        "Model": "compiled_loss compiled_metrics trainable_variables trainable_weights",
        "Variable": """scatter_add scatter_nd_add scatter_nd_sub scatter_nd_update scatter_sub
        scatter_update""",
        "function": "get_concrete_function",
        "GradientTape": "gradient",
        "InputIterator": "get_next_as_optional",
        "ClusterCoordinator": "create_per_worker_dataset",
        "Tensor": "get_shape set_shape",
    }
)

# Methods that replicax has under another name, or not at all. Those that it has carry over.
RENAMED_METHODS = dict(
    pairs("""
    Dataset.make_one_shot_iterator -> iter; Metric.reset_states -> Metric.reset_state;
    Optimizer.get_scaled_loss -> Optimizer.scale_loss; Optimizer.get_unscaled_gradients ->;
    Optimizer.lr -> Optimizer.learning_rate; Shape.as_list -> list; Shape.NAME -> len | ndims rank;
    Shape.num_elements -> np.prod; Strategy.call_for_each_replica -> Strategy.run;
    Strategy.unwrap -> Strategy.experimental_local_results; Tensor.get_shape -> Tensor.shape;
    Tensor.set_shape ->;
    """)
)
THOUGHT_METHODS = {
    f"{owner}.*": f"{CLASSES[owner]} does not have it"
    for owner in """CheckpointManager InputContext InputIterator Iterator Optional Options
    ReplicaContext Strategy StrategyExtended SummaryWriter TFRecordWriter Variable""".split()
} | said("""
Dataset.*: rx.data.Dataset does not have it: see from_generator
Dataset.make_initializable_iterator: iter(dataset); nothing is initialized
Dataset.output_shapes Dataset.output_types: dataset.element_spec
DistributedDataset.*: loop over it, or iter() of it
GradientTape.batch_jacobian: jax.vmap(jax.jacrev(function))(arrays)
GradientTape.jacobian: jax.jacrev(function)(arrays)
GradientTape.reset: leave out of loss_fn what is above
GradientTape.stop_recording: jax.lax.stop_gradient(value)
GradientTape.watched_variables: the variables of rx.value_and_grad
GradientTape.gradient Optimizer.compute_gradients: loss, gradients = rx.value_and_grad(loss_fn,
    variables)
GradientTape.watch: make it a rx.Variable, or use jax.grad
InputIterator.initializer Iterator.initializer: leave it out: an iterator is ready to be read
Model.add_metric: a metric of the model: self.metric.update_state(value)
Model.compiled_loss: self.compute_loss(x, y, predictions)
Model.compiled_metrics: self.compute_metrics(x, y, predictions)
Model.evaluate_generator: model.evaluate(generator)
Model.fit_generator: model.fit(generator)
Model.predict_generator: model.predict(generator)
Model.reset_states: model.reset_state() of its recurrent layers
Optimizer.get_gradients: rx.grad(loss_fn, variables)
Optimizer.minimize: loss, gradients = rx.value_and_grad(loss_fn, variables), then apply_gradients
PreemptionCheckpointHandler.*: the handler of replicax does not have it
Shape.assert_is_compatible_with: assert x.shape == shape
Shape.is_fully_defined: leave it out: shapes are known
Strategy.colocate_vars_with: strategy.extended.colocate_vars_with
Strategy.configure: leave it out: there are no sessions to configure
Variable.eval: variable.numpy()
Variable.initializer: leave it out: variables are ready when they are made
VariableSlice.assign: v.assign(v.at[index].set(value))
VariableSlice.assign_add: v.assign_add(jnp.zeros_like(v).at[index].add(value))
VariableSlice.assign_sub: v.assign_sub(jnp.zeros_like(v).at[index].add(value))
function.get_concrete_function: call it: a function is compiled at its first call
""")
UNSUPPORTED_METHODS = {
    "Session.*": "there are no sessions: call the functions",
    "Session.run": "there are no sessions: call the function that computes it",
}
# Calls of the object itself carry over.
CALLED = "Loss Model"
