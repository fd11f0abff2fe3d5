"""Proofs of a key: each side shows the other that it has it, and neither says it.

Both choose a random challenge for each connection. A proof is an HMAC of both and of who gives it,
so that no proof serves twice, nor for the other side.
"""

import hashlib
import hmac
import secrets


def new_challenge() -> str:
    """Returns a text that nobody has seen before."""
    return secrets.token_hex(32)


def proof(key: str, *words: str) -> str:
    """Returns what shows that somebody has the key.

    Args:
      key: The key.
      words: What the proof is for, who gives it, and both challenges.
    """
    secret = key.encode(errors="surrogateescape")  # as the environment has it
    return hmac.new(secret, "\n".join(words).encode(), hashlib.sha256).hexdigest()


def worker_proof(key: str, worker: int, servers_challenge: str, workers_challenge: str) -> str:
    """Returns what shows the server that a worker has the key of the job."""
    return proof(key, "replicax job", f"worker {worker}", servers_challenge, workers_challenge)


def server_proof(key: str, servers_challenge: str, workers_challenge: str) -> str:
    """Returns what shows a worker that the server has the key of the job."""
    return proof(key, "replicax job", "server", servers_challenge, workers_challenge)


def launcher_proof(key: str, who: str, leaders_challenge: str, members_challenge: str) -> str:
    """Returns what shows one launcher that another, `who`, has the key of the launch."""
    return proof(key, "replicax launch", who, leaders_challenge, members_challenge)


def is_proof(given: str, expected: str) -> bool:
    """Compares proofs in a time that says nothing of how much of them is right."""
    return hmac.compare_digest(given.encode(errors="replace"), expected.encode())
