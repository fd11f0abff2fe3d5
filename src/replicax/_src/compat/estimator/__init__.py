"""`tf.estimator`; `_model.py` makes compiled steps of a function that built a graph."""
