"""The hub's signature inside every task.

Flower checks who sends a request and not whose message it carries: without a seal one site could store a task for another in
the hub's name.

It covers the whole header, with the names of site and run, the round and the kind of task, and every byte of the adapter.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from pathlib import Path

import numpy as np
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedse.engines.flower.wire import Parcel
from fedse.errors import BadInput, Unsealed

SEAL = "seal"
"""Where the signature stands in the header."""
_PURPOSE = b"fedse task, sealed by its hub\n"


class Seal:
    """The hub's half."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key

    @classmethod
    def read(cls, path: Path) -> Seal:
        if not path.is_file():
            raise BadInput(
                f"there is no {path}, with which the hub signs its tasks: `fedse hub init` of this hub makes it."
            )
        try:
            key = serialization.load_pem_private_key(path.read_bytes(), None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise BadInput(f"{path} is not the key with which a hub signs its tasks: restore it.") from error
        if not isinstance(key, Ed25519PrivateKey):
            raise BadInput(f"{path} is not the key with which a hub signs its tasks: restore it.")
        return cls(key)

    def __call__(self, parcel: Parcel) -> Parcel:
        signature = base64.b64encode(self._key.sign(_signed(parcel))).decode()
        return Parcel({**parcel.header, SEAL: signature}, parcel.array)


class SealOfHub:
    """The site's half: the public key that came with its kit."""

    def __init__(self, key: Ed25519PublicKey) -> None:
        self._key = key

    @classmethod
    def read(cls, path: Path) -> SealOfHub:
        try:
            key = serialization.load_pem_public_key(path.read_bytes())
        except (ValueError, UnsupportedAlgorithm) as error:
            raise BadInput(
                f"{path} is not the public key of a hub: use the one of the kit that the hub made."
            ) from error
        if not isinstance(key, Ed25519PublicKey):
            raise BadInput(f"{path} is not the public key of a hub: use the one of the kit that the hub made.")
        return cls(key)

    def check(self, parcel: Parcel) -> None:
        """Raises `Unsealed`."""
        try:
            signature = base64.b64decode(str(parcel.header.get(SEAL, "")), validate=True)
            self._key.verify(signature, _signed(parcel))
        except (InvalidSignature, binascii.Error, ValueError, TypeError, RecursionError):
            raise Unsealed(
                "a task is not signed with the hub's own key, so somebody else has made or changed it: it was not done. If "
                "the hub was made anew, use its new kit."
            ) from None


def _signed(parcel: Parcel) -> bytes:
    header = {key: value for key, value in parcel.header.items() if key != SEAL}
    plain = json.dumps(header, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    return _PURPOSE + hashlib.sha256(plain).digest() + _digest(parcel)


def _digest(parcel: Parcel) -> bytes:
    if parcel.array is None:
        return b"nothing"
    array = np.ascontiguousarray(parcel.array)
    content = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode())
    content.update(array.data if array.size else b"")
    return content.digest()
