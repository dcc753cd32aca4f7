"""Random numbers that nobody outside a site can know: noise that an attacker could compute would protect nothing.

A site has a secret key of its own. What is drawn for a lesson follows from the key, from what the lesson begins with and
from what it learns: a round that is repeated after a crash gets the same noise, and any other round gets other noise. A
server that puts noise on the mean of its sites has such a key too.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedse.errors import BadInput, MissingExtra
from fedse.storage import atomic
from fedse.types import Trajectory

KEY_FILE = "noise.key"
"""In the folder of a site, or of a server's run."""
_BYTES = 32
Normals = npt.NDArray[np.float64]


class NoiseKey:
    """The file with a site's secret; one that is not there is made, where nothing has left yet."""

    def __init__(self, path: Path, nothing_left: bool) -> None:
        if not path.exists() and nothing_left:
            with atomic.new_file(path) as part:
                part.touch(mode=0o600)
                part.write_bytes(secrets.token_bytes(_BYTES))
        self._key = path.read_bytes() if path.exists() else b""
        if len(self._key) != _BYTES:
            raise BadInput(
                f"{path} is missing or damaged, with the secret behind the noise: restore it from a copy. With "
                "another key a repeated round would get other noise, and tell more than the run accounts for."
            )

    def secret(self, round: int, number: int, adapter: str, *learned: Trajectory) -> bytes:
        """A secret for this lesson and for no other. A round in which something else is learned, because a GPU explored
        otherwise, gets other noise: two answers under the same noise would tell their difference."""
        about = hmac.new(self._key, repr((round, number, adapter)).encode(), hashlib.sha256)
        for item in learned:
            about.update(repr((item.token_ids, item.train_mask)).encode())
        return about.digest()

    def of_mean(self, round: int, adapter: str, updates: Iterable[bytes]) -> bytes:
        """A secret for the mean of these updates, in whatever order they came, and for no other."""
        about = hmac.new(self._key, repr(("mean", round, adapter)).encode(), hashlib.sha256)
        for digest in sorted(hashlib.sha256(update).digest() for update in updates):
            about.update(digest)
        return about.digest()

    def of_share(self, round: int, task: str, change: bytes) -> bytes:
        """A secret for a site's part of the noise on a sum, and for no other change or task."""
        about = hmac.new(self._key, repr(("share", round, task)).encode(), hashlib.sha256)
        about.update(hashlib.sha256(change).digest())
        return about.digest()

    @classmethod
    def passing(cls) -> NoiseKey:
        """One that is never stored."""
        made = cls.__new__(cls)
        made._key = secrets.token_bytes(_BYTES)
        return made


class SecretRandom:
    """Uniform and normal numbers from a ChaCha20 stream."""

    def __init__(self, secret: bytes) -> None:
        try:
            from cryptography.hazmat.primitives.ciphers import Cipher
            from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
        except ImportError as error:
            raise MissingExtra("noise for privacy", "cryptography", "dp") from error
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
