"""What a secure sum costs beside updates in the clear: bytes, seconds at a site and at the hub, and what rounding takes.

python benchmarks/secure_sum.py                      an adapter of SmolLM2-135M's size, 3, 5 and 10 sites
python benchmarks/secure_sum.py --values 20000000    another size

up        bytes that each site sends, as a multiple of float32
site      seconds of one site's masks, encoding and its record on disk; the fastest of three
hub       seconds to add all up and read the mean; in the clear, to take the mean of as many files
error     norm of mean - exact mean, as a share of the norm of the mean change; the changes are normal, with this spread
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedse.adapters.stored import store_update
from fedse.aggregators.mean import weighted_mean
from fedse.privacy.secure_sum import SecureSumOptions, SumMember
from fedse.types import ClientUpdate, RoundTask

VALUES = 2_442_240
"""Of an adapter of rank 8 on all linear layers of SmolLM2-135M."""


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--values", type=int, default=VALUES)
    asked.add_argument("--sites", type=int, nargs="+", default=[3, 5, 10])
    asked.add_argument("--spread", type=float, nargs="+", default=[1e-2, 1e-4])
    given = asked.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {given.values:,} values")
    print(
        "| sites | bits | up | site (s) | hub (s) | hub, clear (s) | "
        + " | ".join(f"error at {s:g}" for s in given.spread)
    )
    for sites in given.sites:
        for bits in (32, 64):
            with TemporaryDirectory() as folder:
                print(row(given.values, sites, bits, given.spread, Path(folder)))


def row(values: int, sites: int, bits: int, spreads: list[float], folder: Path) -> str:
    draw = np.random.default_rng(0)
    broadcast = (0.05 * draw.standard_normal(values)).astype(np.float32)
    names = tuple(f"site{number:02d}" for number in range(sites))
    keys = {name: X25519PrivateKey.generate() for name in names}
    options = SecureSumOptions(bits=bits, min_sites=2)
    members = {
        name: SumMember(
            name,
            "run",
            options,
            keys[name],
            {other: key.public_key() for other, key in keys.items() if other != name},
            folder / name,
        )
        for name in names
    }
    layout = (("a", (values,)),)
    errors, at_site = [], []
    for number, spread in enumerate(spreads, start=1):
        task = RoundTask(number, "train", broadcast, layout, {}, participants=names)
        updates = [(broadcast + spread * draw.standard_normal(values)).astype(np.float32) for _ in names]
        parts = []
        for member, update in zip(members.values(), updates, strict=True):
            began = time.perf_counter()
            parts.append(member.masked(update, broadcast, task))
            at_site.append(time.perf_counter() - began)
        files = [
            store_update(ClientUpdate(name, 1, update, layout, {}, {}), folder)
            for name, update in zip(names, updates, strict=True)
        ]
        began = time.perf_counter()
        clear = weighted_mean(files, np.ones(sites))
        in_the_clear = time.perf_counter() - began
        began = time.perf_counter()
        total = parts[0].copy()
        for part in parts[1:]:
            total = total + part
        mean = options.fixed_point(sites).mean(total, broadcast)
        hub = time.perf_counter() - began
        errors.append(float(np.linalg.norm(mean - clear)) / float(np.linalg.norm(clear - broadcast)))
    up = parts[0].nbytes / broadcast.nbytes
    shown = " | ".join(f"{error:.1e}" for error in errors)
    return f"| {sites} | {bits} | {up:.2f} | {min(at_site):.2f} | {hub:.2f} | {in_the_clear:.2f} | {shown} |"


if __name__ == "__main__":
    main()
