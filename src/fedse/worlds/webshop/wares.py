"""The kinds of products that the built-in shop sells. All names are made up.

No two attributes of a kind, and no two values of an option, are so alike that the reward would take one for the other;
two kinds have at most one attribute in common.
"""

from __future__ import annotations

from typing import NamedTuple


class Kind(NamedTuple):
    """What products of one kind are called, what can be said of them, which options they come in, what they cost."""

    category: str
    name: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]
    prices: tuple[int, int]


BRANDS = (
    "Alvora", "Brisk", "Calder", "Dunmore", "Elphin", "Fenwick", "Gravi", "Halden", "Ixora", "Jorvik", "Kestrel",
    "Lumira", "Marlow", "Norvik", "Ostara", "Pelham", "Quillon", "Rowan", "Selkie", "Tarn", "Ulmo", "Verity", "Wexley",
    "Yarrow",
)  # fmt: skip

OPTIONS: dict[str, tuple[str, ...]] = {
    "color": ("black", "white", "red", "blue", "green", "yellow", "pink", "purple", "brown", "gray"),
    "size": ("small", "medium", "large"),
    "shoe size": ("36", "38", "40", "42", "44"),
    "scent": ("lavender", "citrus", "rose", "mint", "unscented"),
    "flavor": ("vanilla", "chocolate", "strawberry", "lemon", "plain"),
    "length": ("1 m", "2 m", "3 m", "5 m"),
    "pieces": ("2 pcs", "4 pcs", "6 pcs"),
    "weight": ("250 g", "500 g", "1 kg"),
}


def _kinds(category: str, *rows: str) -> list[Kind]:
    found = []
    for row in rows:
        name, attributes, options, prices = (part.strip() for part in row.split("|"))
        low, high = prices.split("-")
        found.append(
            Kind(
                category,
                name,
                tuple(part.strip() for part in attributes.split(",")),
                tuple(part.strip() for part in options.split(",")) if options else (),
                (int(low), int(high)),
            )
        )
    return found


KINDS: tuple[Kind, ...] = (
    *_kinds(
        "clothing",
        "running shoes "
        "| breathable, rubber sole, arch support, lightweight, reflective, wide toe | color, shoe size | 30-120",
        "rain jacket | waterproof, hooded, zip pockets, windproof, taped seams, packable | color, size | 35-140",
        "wool socks "
        "| ankle length, thick cushion, odor resistant, seamless toe, merino, machine washable | color, size | 6-28",
        "cotton shirt "
        "| long sleeve, slim fit, button down, wrinkle free, chest pocket, stand collar | color, size | 15-60",
        "leather belt "
        "| reversible, brass buckle, stitched edge, extra narrow, handmade, vintage look | color, size | 12-55",
        "yoga pants "
        "| high waist, stretch fabric, quick dry, squat proof, side pockets, flared leg | color, size | 18-70",
    ),
    *_kinds(
        "electronics",
        "wireless headphones "
        "| noise cancelling, foldable, fast charging, deep bass, built in microphone, padded band | color | 25-180",
        "charging cable "
        "| braided nylon, high speed, right angle plug, tangle free, gold plated, magnetic tip | color, length | 5-30",
        "desk lamp "
        "| dimmable, touch control, flexible neck, eye friendly, clamp mount, memory function | color | 18-90",
        "phone case | shock absorbing, clear back, card holder, raised edges, kickstand, matte finish | color | 8-35",
        "bluetooth speaker "
        "| splash proof, stereo pairing, long battery life, carrying strap, radio tuner, light show | color | 20-130",
        "computer mouse "
        "| silent click, ergonomic, adjustable sensitivity, rechargeable, thumb rest, travel size | color | 10-70",
    ),
    *_kinds(
        "kitchen",
        "frying pan | non stick, induction ready, cool handle, scratch proof, oven safe, pouring lip | size | 15-80",
        "water bottle | leak proof, double wall, straw lid, bpa free, keeps cold, carry loop | color, size | 9-45",
        "chef knife | carbon steel, full tang, hand forged, wooden handle, hammered blade, left handed | size | 20-120",
        "storage jars "
        "| airtight, stackable, bamboo lid, square shape, labels included, borosilicate | pieces, color | 12-50",
        "tea kettle "
        "| whistling, stay warm, gooseneck spout, temperature display, auto shutoff, cordless | color | 22-95",
        "cutting board "
        "| juice groove, knife friendly, feet against slipping, hanging hole, reclaimed oak, extra thick | size | 10-60",
    ),
    *_kinds(
        "beauty",
        "hand cream "
        "| fast absorbing, shea butter, for dry skin, not greasy, with vitamin e, travel tube | scent | 5-25",
        "shampoo | sulfate free, argan oil, color safe, anti dandruff, daily use, for curly hair | scent | 6-30",
        "lip balm | sun protection, beeswax, tinted, long lasting, cooling effect, refillable | flavor | 3-18",
        "bath salts | dead sea, relaxing, foaming, muscle relief, epsom, skin softening | scent, weight | 8-35",
        "hair brush | detangling, boar bristle, anti static, vented, massage pad, curved grip | color | 7-32",
        "body lotion | oat extract, hypoallergenic, pump dispenser, aloe vera, firming, after sun | scent | 7-33",
    ),
    *_kinds(
        "grocery",
        "protein bars "
        "| gluten free, low sugar, nut butter, plant based, crunchy, individually wrapped | flavor, pieces | 8-40",
        "ground coffee | dark roast, fair trade, single origin, low acid, hazelnut notes, fine grind | weight | 7-38",
        "granola "
        "| whole grain, honey baked, with almonds, no palm oil, seed mix, dried cranberries | flavor, weight | 5-26",
        "olive oil | cold pressed, first harvest, unfiltered, peppery, dark glass, estate bottled | pieces | 9-55",
        "herbal tea | caffeine free, loose leaf, ginger root, sleep blend, compostable bags, hibiscus | pieces | 4-24",
        "rice crackers | lightly salted, oven baked, sesame, sea kelp, low fat, family pack | flavor, pieces | 3-20",
    ),
)
