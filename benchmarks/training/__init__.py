"""A training step that several benchmarks have in common: models, losses, and ways to write it."""
