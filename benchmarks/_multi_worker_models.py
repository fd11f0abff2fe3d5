"""The models of `multi_worker.py`: an MLP in three sizes, and what is hard on the overhead."""

from _step_models import MODELS as STEP_MODELS
from _step_models import Dense, Model

MODELS = {
    model.name: model
    for model in (
        Model("small", "64 wide, batch 64", Dense((64,) * 3), 64),
        Model("middle", "512 wide, batch 256", Dense((512,) * 3), 256),
        Model("largest", "1024 wide, batch 1024", Dense((1024,) * 3), 1024),
        STEP_MODELS["deep_narrow"],
        # Its layers are all different, so that each is compiled.
        Model("many_widths", "24 layers", Dense(tuple(range(64, 160, 4))), 48),
        # For trial runs.
        STEP_MODELS["tiny"],
        Model("tiny_start", "two layers", Dense((8, 12)), 12),
    )
}
STANDARD = ("small", "middle", "largest", "deep_narrow")
