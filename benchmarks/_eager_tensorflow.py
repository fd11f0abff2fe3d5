"""TensorFlow's side of `eager.py`: an eager MirroredStrategy step, run on request.

`eager.py` starts this file as a child process, with whatever interpreter has TensorFlow, and
speaks to it in lines of JSON: {"case": ...} prepares a model, {"steps": k} trains it for k steps
and answers with their losses and seconds. Its arguments are the number of replicas and the clock.
One strategy serves all cases: the collectives of a second one would clash with the first's.
"""

import json
import sys

from _child import answers_only, tensorflow_on
from _eager_cases import CASES, CLOCKS, EPSILON, LEARNING_RATE, initial_weights, replica_batches


def make_step(tf, strategy, case):
    """Returns a function that trains for one step and gives back the loss over the whole batch."""
    with strategy.scope():
        variables = [tf.Variable(weight) for weight in initial_weights(case)]
        optimizer = tf.keras.optimizers.Adam(LEARNING_RATE, epsilon=EPSILON)
        optimizer.build(variables)
    parts = replica_batches(case, strategy.num_replicas_in_sync)

    def part(index):
        return strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(parts[context.replica_id_in_sync_group][index])
        )

    def replica_step(inputs, labels):
        with tf.GradientTape() as tape:
            hidden = inputs
            for kernel, bias in zip(variables[:-2:2], variables[1:-2:2], strict=True):
                hidden = tf.nn.relu(hidden @ kernel + bias)
            logits = hidden @ variables[-2] + variables[-1]
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_sum(losses) / case.batch
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss

    inputs, labels = part(0), part(1)

    def step():
        losses = strategy.run(replica_step, args=(inputs, labels))
        return sum(float(loss) for loss in strategy.experimental_local_results(losses))

    return step


def main():
    replicas, now = int(sys.argv[1]), CLOCKS[sys.argv[2]]
    answer = answers_only()

    tf, strategy = tensorflow_on(replicas)
    answer(version=tf.__version__)
    step = None
    for line in sys.stdin:
        request = json.loads(line)
        if "case" in request:
            step = make_step(tf, strategy, CASES[request["case"]])
            answer(ready=True)
            continue
        assert step is not None, "a case comes before its steps"
        losses, seconds = [], []
        for _ in range(request["steps"]):
            begin = now()
            losses.append(step())
            seconds.append(now() - begin)
        answer(losses=losses, seconds=seconds)


if __name__ == "__main__":
    main()
