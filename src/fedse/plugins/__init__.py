"""Plug-ins: classes that stand in the slots of a round, what may be set of them, and how they are found and made."""

from fedse.plugins.choices import STORED, Choice, ChoiceOf, ClientSlot, build, capability, options_of
from fedse.plugins.finding import (
    BY_PATH,
    ENTRY_POINTS,
    is_inline,
    known,
    nearest,
    nearest_or_all,
    path_of,
    resolve,
    summary,
)
from fedse.plugins.fitting import BUILT_WITH, check_made, duties
from fedse.plugins.options import FilePath, PluginOptions, complaint, read_options
from fedse.plugins.returned import described, list_of, numbers, plain_numbers

__all__ = [
    "BUILT_WITH",
    "BY_PATH",
    "ENTRY_POINTS",
    "STORED",
    "Choice",
    "ChoiceOf",
    "ClientSlot",
    "FilePath",
    "PluginOptions",
    "build",
    "capability",
    "check_made",
    "complaint",
    "described",
    "duties",
    "is_inline",
    "known",
    "list_of",
    "nearest",
    "nearest_or_all",
    "numbers",
    "options_of",
    "path_of",
    "plain_numbers",
    "read_options",
    "resolve",
    "summary",
]
