"""The key between launchers: each proves that it has it, and neither says it.

The leader and the member choose a random challenge each. A proof is an HMAC of both and of who
gives it, so that no proof serves twice, nor for the other side.
"""

import hashlib
import hmac
import secrets

VARIABLE = "REPLICAX_LAUNCH_KEY"
LEADER = "the leader"
"""How a proof names the launcher that decides, whichever node it is."""
HOW_TO_GIVE_ONE = f"Start all launchers with the same key: --key, or {VARIABLE} in the environment."


def new_challenge() -> str:
    """Returns a text that nobody has seen before."""
    return secrets.token_hex(32)


def proof(key: str, who: str, challenge_of_leader: str, challenge_of_member: str) -> str:
    """Returns what shows that `who` has the key.

    Args:
      key: The key.
      who: `LEADER`, or "node 1" and so on.
      challenge_of_leader: What the leader has chosen for this connection.
      challenge_of_member: What the other side has chosen.
    """
    words = "\n".join(("replicax launch", who, challenge_of_leader, challenge_of_member))
    return hmac.new(key.encode(), words.encode(), hashlib.sha256).hexdigest()


def is_proof(given: str, expected: str) -> bool:
    """Compares proofs in a time that says nothing of how much of them is right."""
    return hmac.compare_digest(given.encode(), expected.encode())
