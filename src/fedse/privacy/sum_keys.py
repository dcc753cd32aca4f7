"""A site's key pair for secure sums. The secret half never leaves the site; the other sites list the public half in their
own files, and get it by a way that the hub has no hand in: a hub that hands keys out could stand between two sites."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from fedse.errors import BadInput
from fedse.storage import atomic


def make_key(path: Path) -> None:
    """A secret key that only its owner can read. One that is there stays."""
    if path.exists():
        return
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    with atomic.new_file(path) as part:
        part.touch(mode=0o600)
        part.write_bytes(X25519PrivateKey.generate().private_bytes(*form))


def read_key(path: Path) -> X25519PrivateKey:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise BadInput(f"{path} is no key for secure sums: make one with `fedse site key`.") from error
    if not isinstance(key, X25519PrivateKey):
        raise BadInput(f"{path} is no key for secure sums: make one with `fedse site key`.")
    return key


def public_text(key: X25519PrivateKey) -> str:
    """The public half, as other sites write it into their files."""
    return base64.b64encode(key.public_key().public_bytes_raw()).decode()


def read_public(text: str, site: str) -> X25519PublicKey:
    try:
        return X25519PublicKey.from_public_bytes(base64.b64decode(text, validate=True))
    except (ValueError, binascii.Error) as error:
        raise BadInput(
            f"secure_sum.sites: what stands for site '{site}' is no public key: `fedse site key` at that site prints it."
        ) from error
