"""The models of `sharded.py`; their weights, data and losses are those of `step.py`."""

from _step_models import Conv, Model, Transformer

TRANSFORMERS = {
    model.name: model
    for model in (
        Model("large", "transformer, 50M parameters", Transformer(12, 512, 8, 64, 24576), 16),
        Model("small", "transformer, 4M parameters", Transformer(4, 256, 8, 32, 4096), 8),
        Model("tiny", "tiny transformer", Transformer(1, 128, 4, 32, 1024), 8),
    )
}
CONVS = {
    model.name: model
    for model in (
        Model("large", "convolutions of 128 x 128", Conv(128, (3, 32, 64, 64)), 16),
        Model("small", "convolutions of 64 x 64", Conv(64, (3, 16, 32, 32)), 8),
        Model("tiny", "tiny convolutions", Conv(8, (1, 4, 4)), 4),
    )
}
