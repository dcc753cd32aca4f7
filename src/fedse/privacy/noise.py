"""Random numbers that nobody outside a site can know: noise that an attacker could compute would protect nothing.

A site has a secret key of its own. What is drawn for a lesson follows from the key and from what the lesson begins with, so
that a round that is repeated after a crash gets the same noise, and a round that begins otherwise gets other noise.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedse.errors import BadInput
from fedse.storage import atomic

_BYTES = 32
Normals = npt.NDArray[np.float64]


class NoiseKey:
    """The file with a site's secret; one that is not there is made."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            with atomic.new_file(path) as part:
                part.touch(mode=0o600)
                part.write_bytes(secrets.token_bytes(_BYTES))
        self._key = path.read_bytes()
        if len(self._key) != _BYTES:
            raise BadInput(
                f"{path} is damaged, with the secret of this client's noise: restore it from a copy. With another key a "
                "round that is repeated would get other noise, and tell more than the run accounts for."
            )

    def secret(self, *about: object) -> bytes:
        """A secret for what these words say, and for nothing else."""
        return hmac.new(self._key, repr(about).encode(), hashlib.sha256).digest()


class SecretRandom:
    """Uniform and normal numbers from a ChaCha20 stream."""

    def __init__(self, secret: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher
        from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

        # A secret is used for one stream, so that the nonce need not differ.
        self._stream = Cipher(ChaCha20(secret, bytes(16)), mode=None).encryptor()

    def uniform(self, count: int) -> Normals:
        """In [0, 1), with all 53 bits of a float."""
        drawn = np.frombuffer(self._stream.update(bytes(8 * count)), dtype="<u8")
        return np.asarray((drawn >> np.uint64(11)) * 2.0**-53, dtype=np.float64)

    def normal(self, count: int) -> Normals:
        """By Box and Muller."""
        pairs = -(-count // 2)
        radius = np.sqrt(-2.0 * np.log1p(-self.uniform(pairs)))
        angle = 2.0 * np.pi * self.uniform(pairs)
        return np.concatenate((radius * np.cos(angle), radius * np.sin(angle)))[:count]
