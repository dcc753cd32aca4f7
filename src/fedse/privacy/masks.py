"""Pairwise masks: each two sites agree on a stream of numbers that one adds and the other takes away.

    secret(a, b)  = X25519(own secret key, the other's public key)            the same at both, unknown to everybody else
    key(a, b)     = HKDF-SHA256(secret, info = what the sum is of)
    stream(a, b)  = ChaCha20(key), as numbers modulo 2^bits
    masked_k      = summand_k + sum over b > k of stream(k, b) - sum over b < k of stream(b, k)

Over all sites of the sum the streams cancel. Over any others they do not: what is left looks like chance to whoever does not
have one of the two secret keys.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedse.privacy.fixed_point import Residues

PIECE = 1 << 22
"""Bytes of a stream that are held at once."""
_PURPOSE = "fedse secure sum 1"


def masked(
    summand: Residues, own: str, key: X25519PrivateKey, others: Mapping[str, X25519PublicKey], about: Mapping[str, Any]
) -> Residues:
    """The summand of site `own` under the masks that it shares with the others. `about` says what the sum is of; a stream
    belongs to it alone."""
    hidden = summand.copy()
    for other, public in others.items():
        pair = sorted((own, other))
        info = json.dumps({**about, "purpose": _PURPOSE, "pair": pair}, sort_keys=True).encode()
        derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(key.exchange(public))
        _add_stream(hidden, derived, takes_away=own == pair[1])
    return hidden


def _add_stream(values: Residues, key: bytes, takes_away: bool) -> None:
    # The key is used for this one stream, so that the nonce need not differ.
    stream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()
    step = PIECE // values.dtype.itemsize
    for start in range(0, values.size, step):
        piece = values[start : start + step]
        drawn = np.frombuffer(stream.update(bytes(piece.nbytes)), dtype=values.dtype)
        (np.subtract if takes_away else np.add)(piece, drawn, out=piece)
