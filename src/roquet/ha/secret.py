"""How master and slave show each other that they know the shared secret, before the first report.

The master begins with a mark and a nonce. The slave answers with its broker id, a nonce of its own
and a digest over both; the master closes with a digest the other way round. Neither sends the
secret, and an answer is of no use on another connection. Off by default: Java brokers do not
speak it. It says who is there, it hides nothing: TLS does.
"""

from __future__ import annotations

import hmac
import struct

from roquet.ha.frames import PeerFault

MARK = b"ROQUETHA"
NONCE_SIZE = 32
CHALLENGE_SIZE = len(MARK) + NONCE_SIZE
_DIGEST_SIZE = 32
_ID = struct.Struct(">q")
ANSWER_SIZE = _ID.size + NONCE_SIZE + _DIGEST_SIZE
PROOF_SIZE = _DIGEST_SIZE


def _digest(secret: str, *parts: bytes) -> bytes:
    return hmac.digest(secret.encode(), b"".join(parts), "sha256")


class MasterGate:
    """A master's side of the proof."""

    def __init__(self, secret: str, nonce: bytes) -> None:
        self._secret = secret
        self._nonce = nonce
        self._data = b""

    def challenge(self) -> bytes:
        """Return what is sent first."""
        return MARK + self._nonce

    def receive(self, data: bytes) -> tuple[int, bytes, bytes] | None:
        """Return (slave's broker id, proof to send, bytes behind); None while bytes are missing.

        Raises PeerFault when the slave does not know the secret.
        """
        self._data += data
        if len(self._data) < ANSWER_SIZE:
            return None
        answer, rest = self._data[:ANSWER_SIZE], self._data[ANSWER_SIZE:]
        who, digest = answer[:-_DIGEST_SIZE], answer[-_DIGEST_SIZE:]
        if not hmac.compare_digest(digest, _digest(self._secret, b"slave", self._nonce, who)):
            raise PeerFault("does not know haSharedSecret")
        (slave,) = _ID.unpack_from(who)
        return slave, _digest(self._secret, b"master", who, self._nonce), rest


class SlaveGate:
    """A slave's side of the proof."""

    def __init__(self, secret: str, broker_id: int, nonce: bytes) -> None:
        self._secret = secret
        self._who = _ID.pack(broker_id) + nonce
        self._challenge = b""
        self._data = b""

    def receive(self, data: bytes) -> tuple[bytes, bytes | None]:
        """Return (bytes to send, bytes behind the master's proof; None while it is missing).

        Raises PeerFault when the master does not ask for the secret or does not know it.
        """
        self._data += data
        answer = b""
        if not self._challenge:
            if not self._data.startswith(MARK[: len(self._data)]):
                raise PeerFault("does not ask for haSharedSecret")
            if len(self._data) < CHALLENGE_SIZE:
                return b"", None
            self._challenge = self._data[len(MARK) : CHALLENGE_SIZE]
            self._data = self._data[CHALLENGE_SIZE:]
            answer = self._who + _digest(self._secret, b"slave", self._challenge, self._who)
        if len(self._data) < PROOF_SIZE:
            return answer, None
        proof, rest = self._data[:PROOF_SIZE], self._data[PROOF_SIZE:]
        wanted = _digest(self._secret, b"master", self._who, self._challenge)
        if not hmac.compare_digest(proof, wanted):
            raise PeerFault("does not know haSharedSecret")
        return answer, rest
