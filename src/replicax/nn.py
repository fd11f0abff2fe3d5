"""`rx.nn`: losses over the global batch, and rows of embeddings."""

from replicax._src.parameter_servers import embedding_lookup as embedding_lookup
from replicax._src.training import compute_average_loss as compute_average_loss
from replicax._src.training import scale_regularization_loss as scale_regularization_loss
from replicax._src.training import share_of_mean as share_of_mean
