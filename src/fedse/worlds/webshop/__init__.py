"""WebShop: find a product in an online shop and buy it. Clean: test products are never asked for in training."""

from fedse.worlds.webshop.world import WebShop

__all__ = ["WebShop"]
