"""Everything the WebShop world says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fedse.worlds.reply_form import RulesLength, asked_for, asked_for_briefly
from fedse.worlds.webshop.catalogue import Product
from fedse.worlds.webshop.expert import Advice
from fedse.worlds.webshop.goals import Goal
from fedse.worlds.webshop.pages import BACK, BUY, NEXT, PREVIOUS, Layout, Page, Shop

_SHORT_TITLE = 60
_SHORT_SECTION = 240


@dataclass(frozen=True)
class Narrator:
    """The texts for one choice of options."""

    original: bool
    rules_length: RulesLength
    view_length: Literal["full", "brief"]
    layout: Layout
    turn_limit: int

    @property
    def is_brief(self) -> bool:
        return self.view_length == "brief"

    def wish(self, goal: Goal) -> str:
        """What the customer asks for, as the pages show it."""
        if not self.is_brief:
            return goal.instruction
        options = "".join(f"; {name}: {value}" for name, value in goal.options)
        limit = f"; at most ${goal.price_limit:.0f}" if goal.is_limited else ""
        return f"{goal.product.instruction}{options}{limit}"

    # Pages

    def view(self, shop: Shop, page: Page, goal: Goal) -> str:
        if self.original:
            return " [SEP] ".join(self._original_parts(shop, page, goal))
        lines = self._lines(shop, page)
        if self.is_brief:
            # The wish stands on the first page only; the agent has it in its history.
            return "\n".join(lines) if page.number else self.wish(goal)
        return "\n".join([f"Instruction: {self.wish(goal)}", *lines])

    def _original_parts(self, shop: Shop, page: Page, goal: Goal) -> list[str]:
        """The texts of a page of the original in the order of its layout."""
        wish = goal.instruction
        if page.number == 0:
            return ["WebShop", "Instruction:", wish, "Search"]
        parts = ["Instruction:", wish, BACK]
        if not page.product:
            parts.append(f"Page {page.number} (Total results: {len(shop.hits(page.query))})")
            parts += [PREVIOUS, NEXT] if page.number > 1 else [NEXT]
            for hit in shop.listed(page, self.layout):
                parts += [hit.id, hit.title.strip(), hit.price_tag]
            return parts
        product = shop.by_id[page.product]
        parts.append(PREVIOUS)
        if page.section:
            return parts + [text.strip() for text in _section(product, page.section)]
        for name, values in product.options.items():
            parts += [name, *values]
        return [
            *parts,
            product.title.strip(),
            f"Price: {product.price_tag}",
            "Rating: N.A.",
            *self.layout.sections,
            BUY,
        ]

    def _lines(self, shop: Shop, page: Page) -> list[str]:
        if page.number == 0:
            return ["This is the search page."]
        back = [BACK] if self.layout.has_back else []
        if not page.product:
            return self._results(shop, page, back)
        product = shop.by_id[page.product]
        if page.section:
            texts = [f"- {text.strip()}" for text in _section(product, page.section) if text.strip()]
            if self.is_brief:
                return [_cut(" ".join(texts), _SHORT_SECTION), _buttons([PREVIOUS])]
            return [f"{page.section} of {product.id}:", *texts, _buttons([PREVIOUS, *back])]
        head = [f"[{product.id}] {self._price(product)}"]
        if not self.is_brief:
            head = [product.title.strip(), f"Price: {self._price(product)}"]
        return [*head, *self._options(product, page), _buttons([*self.layout.sections, BUY, PREVIOUS, *back])]

    def _results(self, shop: Shop, page: Page, back: list[str]) -> list[str]:
        last = shop.last_page(page.query, self.layout)
        buttons = [PREVIOUS] * (page.number > 1) + [NEXT] * (page.number < last) + back
        hits = shop.listed(page, self.layout)
        if not hits:
            head = "Nothing found." if self.is_brief else f'Nothing was found for "{page.query}".'
        elif self.is_brief:
            head = f"page {page.number} of {last}"
        else:
            head = f'Results for "{page.query}", page {page.number} of {last}:'
        return [head, *(self._hit(hit) for hit in hits), *([_buttons(buttons)] if buttons else [])]

    def _hit(self, hit: Product) -> str:
        title = hit.title.strip()
        if self.is_brief:
            title = hit.short_title or _cut(title, _SHORT_TITLE)
        return f"[{hit.id}] {title}, {self._price(hit)}"

    def _price(self, product: Product) -> str:
        """The amount to pay; the original shows a range where it draws the amount from one."""
        return f"${product.price:.2f}"

    def _options(self, product: Product, page: Page) -> list[str]:
        """One line for each option; a brief page shows of a chosen one only the choice."""
        chosen, found = dict(page.chosen), []
        for name, values in product.options.items():
            if self.is_brief and name in chosen:
                found.append(f"{name}: {chosen[name]} chosen")
                continue
            told = f" (chosen: {chosen[name]})" if name in chosen else ""
            found.append(f"{name}: {_buttons(values)}{told}")
        return found

    def impossible(self, understood: bool) -> str:
        """What comes before the page when an action does nothing; in the original nothing does, if it was understood."""
        if self.original:
            return "" if understood else "Invalid Action.\n\n"
        if self.is_brief:
            return "Not possible here.\n"
        return "That does nothing. Write search[keywords], or click[text] with a text in brackets on this page.\n"

    def sold(self, product: Product, score: float) -> str:
        if self.original:
            return f"Thank you for shopping with us! [SEP] Your score (min 0.0, max 1.0) [SEP] {score}"
        if self.is_brief:
            return f"Bought {product.id}. Score: {score:.2f}"
        verdict = "That is all that was asked for." if score == 1 else "That is not all that was asked for."
        return f"You bought {product.id}. {verdict} Your score, from 0 to 1: {score:.2f}"

    # Thoughts

    def thought(self, advice: Advice, goal: Goal) -> str:
        """Why the expert does what it does, told from what the page shows."""
        if self.rules_length == "bare":
            return ""
        product, (name, value) = advice.product, advice.option
        if advice.reason == "open" and product:
            return self._thought_open(product, goal)
        brief, full = {
            "search": ("Search for what is asked.", "I search with the words that describe the product."),
            "search again": ("Not here, search.", "This does not lead to what is asked for, so I search."),
            "next": ("None fits, next page.", "None of these products has all that is asked for, so I turn the page."),
            "back": ("Not here, go back.", "This is not where I want to be, so I go back."),
            "lacking": (f"No {name} {value}, go back.", f"It does not come in {name} {value}, so I go back."),
            "option": (f"{name.capitalize()} must be {value}.", f"The {name} should be {value}."),
            "buy": ("All is right, buy.", "Everything fits what is asked for, so I buy it."),
        }[advice.reason]
        return brief if self.rules_length == "brief" else full

    def _thought_open(self, product: Product, goal: Goal) -> str:
        named = all(attribute in product.title.lower() for attribute in goal.product.wanted)
        cheap = goal.is_limited and product.price <= goal.price_limit
        if self.rules_length == "brief":
            return f"{product.id} has it all{' at a good price' * cheap}." if named else f"{product.id} comes nearest."
        price = f" and {self._price(product)} is below {goal.price_limit:.2f}" if cheap else ""
        if named:
            return f"The title of {product.id} says {', '.join(goal.product.wanted)}{price}, so I open it."
        return f"{product.id} comes nearest to what is asked for{price}, so I open it."

    # Hints

    advice = (
        "Search with the words that name the product, without options and price. Open a product, click every option that is "
        "asked for, and then buy."
    )

    def aim(self, advice: Advice, goal: Goal) -> str:
        """What the next clicks are for."""
        name, value = advice.option
        match advice.reason:
            case "option":
                return f"This product fits, and its {name} is not chosen yet."
            case "buy":
                return "This product fits, and all its options are chosen."
            case "lacking":
                return f"This product does not come in {name} {value}: it is the wrong one."
            case "back":
                return "This page does not lead on: what you need is further back."
            case _:
                return f"Look for this product: {(advice.product or goal.product).title}"

    # Rules

    def rules(self) -> str:
        return self._full_rules() if self.rules_length == "full" else self._brief_rules()

    def _clicks(self) -> str:
        if self.original:
            return "click[text], where the text is a button, a product's id or an option on the page"
        return "click[text], where the text stands in [brackets] on the page"

    def _brief_rules(self) -> str:
        return (
            "You shop for a customer. Buy a product with all that is asked for, in the right options.\n"
            f"Actions: search[words]; {self._clicks()}.\n"
            "Answer with one action per turn, in "
            f"{asked_for_briefly(self.rules_length, 'search[...] or click[...]')}"
        )

    def _full_rules(self) -> str:
        shown = "as one text, with [SEP] between its parts" if self.original else "as text"
        example = (
            "Thought: I search with the words that describe the product.\nAction: search[folding garden chair]",
            "Thought: The first one folds and is cheap enough. I open it.\nAction: click[X1234]",
            "Thought: The color should be green.\nAction: click[green]",
            "Thought: This is the right product and the options are chosen, so I buy it.\nAction: click[Buy Now]",
        )
        return (
            "You are shopping online for a customer. The instruction says which product to buy, with which attributes and "
            "options, and how much it may cost. Find such a product, choose its options and buy it.\n"
            f"Every turn you see a page of the shop {shown}. There are two actions:\n"
            "search[keywords] looks for products, from any page. The keywords are up to you: choose them with care.\n"
            f"{self._clicks()}, follows a link, turns a page, chooses an option or buys.\n"
            f'"{BUY}" ends the episode. You are paid for every attribute and option that fits and for a price within the '
            "limit; you succeed only when everything fits. "
            f"Anything else does nothing and costs a turn. You have {self.turn_limit} turns.\n\n"
            "The replies of an episode may look like this:\n" + "\n\n".join(example) + "\n\n"
            "Give exactly one action per turn, in this form:\n"
            + asked_for("what you conclude from the page", "search[keywords] or click[text]")
        )


def _buttons(texts: Sequence[str]) -> str:
    return " ".join(f"[{text}]" for text in texts)


def _section(product: Product, section: str) -> tuple[str, ...]:
    if section == "Features":
        return product.features
    return (product.description,) if section == "Description" else ()


def _cut(text: str, most: int) -> str:
    """The text, or its first words and dots."""
    if len(text) <= most:
        return text
    return text[: most - 3].rsplit(" ", 1)[0].rstrip(" ,;.-") + "..."
