"""Checkpoints of other libraries: TensorFlow's own, read without TensorFlow, and SafeTensors."""
