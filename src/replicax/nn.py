"""`rx.nn`: losses over the global batch, and rows of embeddings."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from replicax._src._public import load_on_demand as _load_on_demand
from replicax._src.training import compute_average_loss as compute_average_loss
from replicax._src.training import scale_regularization_loss as scale_regularization_loss
from replicax._src.training import share_of_mean as share_of_mean

if _TYPE_CHECKING:
    from replicax._src.parameter_servers import embedding_lookup as embedding_lookup
else:
    __all__, __getattr__, __dir__ = _load_on_demand(
        __name__, {"replicax._src.parameter_servers": "embedding_lookup"}
    )
