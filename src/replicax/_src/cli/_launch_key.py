"""The key between launchers: each proves that it has it, and neither says it."""

from replicax._src.cluster.control import _proof
from replicax._src.cluster.control._proof import is_proof as is_proof
from replicax._src.cluster.control._proof import new_challenge as new_challenge

VARIABLE = "REPLICAX_LAUNCH_KEY"
LEADER = "the leader"
"""How a proof names the launcher that decides, whichever node it is."""
HOW_TO_GIVE_ONE = f"Start all launchers with the same key: --key, or {VARIABLE} in the environment."


def proof(key: str, who: str, challenge_of_leader: str, challenge_of_member: str) -> str:
    """Returns what shows that `who` has the key.

    Args:
      key: The key.
      who: `LEADER`, or "node 1" and so on.
      challenge_of_leader: What the leader has chosen for this connection.
      challenge_of_member: What the other side has chosen.
    """
    return _proof.proof(key, "replicax launch", who, challenge_of_leader, challenge_of_member)
