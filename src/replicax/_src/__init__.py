"""What is behind the public names of replicax; it can change from one version to the next."""

from jax.version import __version__ as _version_of_jax

from replicax._src._versions import check_jax as _check_jax

_check_jax(_version_of_jax)  # before anything here relies on it
