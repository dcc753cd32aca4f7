"""The recipes that ship with fedse: a village workshop with wood, metals, colours, stone, food and small inventions.

A line reads `4 stick: 2 planks`. Words in braces stand for each member of a family, so that one line gives several recipes.
"""

from __future__ import annotations

from functools import lru_cache

from fedse.worlds.textcraft.recipes import Book, Need, Recipe, without_cycles

FAMILIES = {
    "wood": ("oak", "birch", "pine"),
    "metal": ("copper", "iron", "tin", "silver", "gold"),
    "colour": ("red", "blue", "yellow", "white", "black", "orange", "green", "purple", "pink", "grey"),
    "stone": ("granite", "marble", "slate", "basalt"),
    "fruit": ("apple", "pear", "plum", "berry"),
    "vegetable": ("carrot", "onion", "tomato", "potato", "mushroom"),
}

KINDS = {
    "planks": ("oak planks", "birch planks", "pine planks"),
    "fruit": FAMILIES["fruit"],
}
"""Needs that any of these items fills. Planks are crafted, fruit is fetched."""

RECIPES = """
4 {wood} planks: 1 {wood} log
2 {wood} bowl: 1 {wood} planks
1 {wood} bench: 3 {wood} planks
1 {wood} door: 4 {wood} planks
1 {wood} crate: 4 {wood} planks, 2 iron nail
1 {wood} bucket: 3 {wood} planks, 1 rope
1 {wood} shield: 4 {wood} planks, 1 iron ingot
1 {wood} chair: 2 {wood} planks, 2 stick
1 {wood} table: 3 {wood} planks, 4 stick
1 {wood} ladder: 1 {wood} planks, 4 stick
2 {wood} fence: 2 {wood} planks, 2 stick
1 {wood} sign: 1 {wood} planks, 1 stick
1 {wood} barrel: 4 {wood} planks, 1 iron hoop
1 {wood} bed: 3 {wood} planks, 1 mattress
1 {wood} raft: 4 {wood} planks, 2 rope
1 {wood} boat: 4 {wood} planks, 1 oar
1 {wood} wheel: 4 {wood} planks, 1 axle
1 {wood} gate: 2 {wood} fence, 1 iron hinge
4 stick: 2 planks
1 oar: 2 stick
1 axle: 2 stick, 1 iron nail

2 {metal} ingot: 2 {metal} ore, 1 coal
4 {metal} nail: 1 {metal} ingot
2 {metal} wire: 1 {metal} ingot
6 {metal} coin: 1 {metal} ingot
1 {metal} plate: 2 {metal} ingot
1 {metal} cup: 2 {metal} ingot
1 {metal} spoon: 1 {metal} ingot
2 {metal} hinge: 1 {metal} ingot
1 {metal} hoop: 2 {metal} wire
1 {metal} ring: 1 {metal} wire, 1 pearl
1 {metal} chain: 2 {metal} wire
1 {metal} needle: 1 {metal} nail, 1 flint
1 {metal} knife: 1 {metal} ingot, 1 stick
1 {metal} shovel: 1 {metal} ingot, 2 stick
1 {metal} sword: 2 {metal} ingot, 1 stick
1 {metal} axe: 2 {metal} ingot, 2 stick
1 {metal} pick: 3 {metal} ingot, 2 stick
1 {metal} helmet: 1 {metal} plate, 1 leather
1 {metal} bell: 1 {metal} plate, 1 rope
1 {metal} lock: 1 {metal} plate, 1 {metal} nail
1 {metal} mirror: 1 {metal} plate, 1 glass
1 {metal} lantern: 1 {metal} hoop, 1 candle
1 {metal} necklace: 1 {metal} chain, 2 pearl
1 {metal} whistle: 1 {metal} hoop, 1 cork
1 {metal} safe: 1 {metal} lock, 1 {metal} hinge

2 red dye: 1 poppy
2 blue dye: 1 cornflower
2 yellow dye: 1 marigold
2 white dye: 1 chalk
2 black dye: 1 coal
2 orange dye: 1 red dye, 1 yellow dye
2 green dye: 1 blue dye, 1 yellow dye
2 purple dye: 1 red dye, 1 blue dye
2 pink dye: 1 red dye, 1 white dye
2 grey dye: 1 black dye, 1 white dye
2 {colour} cloth: 2 cloth, 1 {colour} dye
1 {colour} paint: 1 {colour} dye, 1 egg
1 {colour} vase: 1 {colour} dye, 1 pot
2 {colour} bead: 1 {colour} dye, 1 glass
2 {colour} paper: 2 paper, 1 {colour} dye
1 {colour} candle: 1 candle, 1 {colour} dye
1 {colour} ink: 1 {colour} dye, 1 bottle
4 {colour} ribbon: 1 {colour} cloth
1 {colour} rug: 2 {colour} cloth
1 {colour} hat: 1 {colour} cloth, 1 feather
1 {colour} flag: 1 {colour} cloth, 1 bamboo
1 {colour} kite: 1 {colour} paper, 1 thread

2 {stone} brick: 2 {stone}
1 {stone} bowl: 1 {stone}, 1 flint
1 {stone} slab: 2 {stone} brick
1 {stone} stairs: 3 {stone} brick
4 {stone} tile: 1 {stone} slab
1 {stone} pillar: 2 {stone} slab
1 {stone} bench: 1 {stone} slab, 2 {stone} brick
1 {stone} oven: 4 {stone} brick, 1 iron plate
1 {stone} mill: 1 {stone} slab, 1 gear
1 {stone} fountain: 1 {stone} pillar, 1 water

1 flour: 2 wheat
2 dough: 1 flour, 1 water
1 bread: 1 dough, 1 salt
1 noodles: 1 dough, 1 egg
1 butter: 1 milk
1 cheese: 1 milk, 1 salt
1 sugar: 2 sugar cane
1 cookie: 1 dough, 1 sugar
1 cake: 1 flour, 1 sugar, 2 egg
1 pancake: 1 flour, 1 milk
1 fruit salad: 3 fruit, 1 honey
1 fruit pie: 1 dough, 2 fruit
1 fruit cake: 1 cake, 2 fruit
1 cheese pie: 1 dough, 1 cheese
1 sandwich: 1 bread, 1 cheese
1 toast: 1 bread, 1 butter
1 {fruit} juice: 2 {fruit}, 1 bottle
1 {fruit} jam: 2 {fruit}, 1 sugar
1 {fruit} tart: 1 dough, 1 {fruit} jam
1 {fruit} sorbet: 2 {fruit}, 1 ice
1 {vegetable} soup: 2 {vegetable}, 1 water
1 {vegetable} stew: 1 {vegetable} soup, 1 meat
1 {vegetable} pie: 1 dough, 2 {vegetable}
1 {vegetable} salad: 1 {vegetable}, 1 oil
1 oil: 3 olive
1 fish pie: 1 dough, 1 fish

2 thread: 1 flax
1 rope: 2 thread
1 rope: 3 vine
2 cloth: 1 wool
1 mattress: 2 cloth, 2 straw
1 pillow: 1 cloth, 2 feather
1 quilt: 1 pillow, 2 thread
1 sail: 4 cloth, 1 rope
1 tent: 3 cloth, 2 rope
1 hammock: 2 cloth, 2 rope
1 backpack: 2 leather, 1 rope
1 boots: 2 leather, 1 thread
1 belt: 1 leather, 1 iron ring
1 glove: 1 leather, 1 thread
1 net: 4 rope
1 snare: 1 rope, 1 stick
1 fishing rod: 1 stick, 2 thread
1 bow: 2 stick, 1 rope
4 arrow: 1 stick, 1 flint, 1 feather
1 crossbow: 1 bow, 1 iron wire
1 basket: 4 reed
1 broom: 1 stick, 2 straw
1 brush: 1 stick, 1 horsehair
1 scarecrow: 2 stick, 2 straw, 1 pumpkin
1 torch: 1 stick, 1 resin
1 campfire: 2 stick, 1 coal
1 wax: 1 honeycomb
2 candle: 1 wax, 1 thread
2 soap: 1 ash, 1 oil
2 paper: 2 reed
1 book: 3 paper, 1 leather
1 map: 1 paper, 1 black ink
1 diary: 1 book, 1 quill
1 quill: 1 feather, 1 flint
1 letter: 1 paper, 1 wax
1 envelope: 2 paper
1 fan: 2 paper, 1 stick
1 glue: 2 bone
1 glue: 1 resin, 1 water
1 puppet: 1 cloth, 1 thread, 1 bead
1 bead: 1 clay
1 pot: 2 clay
2 tile: 1 clay, 1 ash
1 stove: 1 pot, 1 iron plate
2 glass: 2 sand, 1 ash
1 bottle: 1 glass, 1 cork
1 window: 2 glass, 1 glue
1 lens: 1 glass, 1 chalk
1 spectacles: 2 lens, 1 gold wire
1 telescope: 1 lens, 1 copper hoop
1 hourglass: 2 bottle, 1 sand
1 lamp: 1 bottle, 1 oil
1 gear: 1 iron plate, 1 flint
1 clock: 1 gear, 1 glass
1 compass: 1 iron needle, 1 cork
1 magnet: 1 iron ingot, 1 copper wire
1 drum: 2 leather, 1 rope
1 flute: 1 stick, 1 iron knife
1 lute: 1 glue, 2 iron wire, 1 planks
1 harp: 2 gold wire, 1 oak planks
1 cart: 1 axle, 1 pine crate
1 plough: 1 iron plate, 2 stick
1 anvil: 2 iron plate
1 statue: 1 marble pillar, 1 white paint
1 mosaic: 1 red bead, 1 slate tile
"""


def _amount(text: str) -> Need:
    count, _, name = text.strip().partition(" ")
    return name, int(count)


def _expanded(line: str) -> list[str]:
    for family, members in FAMILIES.items():
        if f"{{{family}}}" in line:
            return [line.replace(f"{{{family}}}", member) for member in members]
    return [line]


@lru_cache(maxsize=1)
def workshop() -> Book:
    """The built-in recipes."""
    recipes = []
    for line in (line for template in RECIPES.split("\n") if template for line in _expanded(template)):
        made, _, needs = line.partition(":")
        name, count = _amount(made)
        recipes.append(Recipe(name, count, tuple(_amount(need) for need in needs.split(","))))
    names = {recipe.makes for recipe in recipes} | {name for recipe in recipes for name, _ in recipe.needs}
    members = {item for own in KINDS.values() for item in own}
    return Book(without_cycles(recipes, KINDS), KINDS, frozenset((names | members) - set(KINDS)))
