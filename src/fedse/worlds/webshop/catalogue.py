"""What a shop sells: products, read from a file in the layout of the original's catalogue."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedse.errors import BadInput
from fedse.seeds import stream, uniform

_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """One thing on sale."""

    id: str
    title: str
    description: str
    features: tuple[str, ...]
    price: float
    price_tag: str
    """The price as a page shows it: one amount or a range."""
    path: tuple[str, ...]
    """Where it stands in the shop, from the widest shelf to the narrowest."""
    category: str
    kind: str
    """What it is, as one would ask for it: the original's `query`."""
    options: Mapping[str, tuple[str, ...]]
    attributes: tuple[str, ...]
    instruction: str = ""
    """How a customer asks for it; empty for a product that nobody asks for."""
    wanted: tuple[str, ...] = ()
    """The attributes that the instruction names."""
    short_title: str = ""
    """The title for brief pages, where it has one."""
    family: str = ""
    """Products of one family resemble each other and belong to the same split."""

    def text(self, fields: frozenset[str]) -> str:
        """What the search engine reads of the product."""
        parts = {
            "title": self.title,
            "description": self.description,
            "features": self.features[0] if self.features else "",
            "options": ", and ".join(f"{name}: {', '.join(values)}" for name, values in self.options.items()),
        }
        return " ".join(text for field, text in parts.items() if field in fields)


def drawn_price(product_id: str, prices: list[float]) -> float:
    """The price to pay: where a range is given, a point in it that depends on the product alone."""
    if not prices:
        return 100.0
    if len(prices) == 1:
        return prices[0]
    low, high = prices[:2]
    return low + (high - low) * uniform(stream("webshop price", product_id), 0)


def read_products(path: Path) -> tuple[Product, ...]:
    """The products of a JSON file, plain or gzipped, in the order of the file."""
    try:
        status = path.stat()
    except OSError as error:
        raise BadInput(f"webshop: the catalogue {path} cannot be read: {error}.") from error
    return _read(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=4)
def _read(path: Path, _changed: int, _size: int) -> tuple[Product, ...]:
    try:
        raw = path.read_bytes()
        content = json.loads(gzip.decompress(raw) if raw.startswith(_GZIP) else raw)
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise BadInput(f"webshop: the catalogue {path} cannot be read: {error}.") from error
    except json.JSONDecodeError as error:
        raise BadInput(f"webshop: the catalogue {path} is not JSON: {error}.") from error
    if not isinstance(content, list) or not content:
        raise BadInput(f"webshop: the catalogue {path} must hold a list of products.")
    products: dict[str, Product] = {}
    for place, entry in enumerate(content):
        try:
            product = _product(entry)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadInput(
                f"webshop: product {place} of {path} is not in the layout of the catalogue ({type(error).__name__}: "
                f"{error}); it needs asin, name, full_description, small_description, pricing, product_category, "
                "category, query, options, attributes, instruction and instruction_attributes."
            ) from error
        products.setdefault(product.id, product)
    return tuple(products.values())


def _product(entry: dict[str, Any]) -> Product:
    name = str(entry["asin"])
    features = entry["small_description"]
    prices = [float(price) for price in entry["pricing"] or []]
    shown = [f"${price}" for price in prices[:2]] or ["$100.0"]
    wanted = tuple(str(attribute) for attribute in entry["instruction_attributes"] or ())
    return Product(
        id=name,
        title=str(entry["name"]),
        description=str(entry["full_description"]),
        features=tuple(features) if isinstance(features, list) else (str(features),),
        price=drawn_price(name, prices),
        price_tag=" to ".join(shown),
        path=tuple(part.strip() for part in entry["product_category"].split("\u203a")),
        category=str(entry["category"]),
        kind=entry["query"].lower().strip(),
        options={option: tuple(values) for option, values in entry["options"].items()},
        attributes=tuple(entry["attributes"]),
        # Nobody can be pleased who asks for nothing.
        instruction=str(entry["instruction"]) if entry["instruction"] and wanted else "",
        wanted=wanted,
        family=name,
    )
