"""The public API beside TensorFlow's: what was recorded, what differs, the pages that say so."""
