"""What the plugin can do in more than one way, by environment variables, as AReaL's workers do.

Notable:
- an unknown value stops the process: a misspelt switch must not run as another
"""

from __future__ import annotations

import os

# Each variable with its values; the first is the default.
OPTIONS = {
    "ESPALIER_AREAL_PACKER": ("areal", "prefix-aware"),
    "ESPALIER_AREAL_HEAD": ("fused", "logits"),
    "ESPALIER_AREAL_MINIBATCHES": ("rows", "groups"),
}


def option(name: str) -> str:
    """The value of ``ESPALIER_AREAL_<name>``; raises ValueError where there is no such value."""
    variable = f"ESPALIER_AREAL_{name}"
    values = OPTIONS[variable]
    value = os.environ.get(variable, values[0])
    if value not in values:
        raise ValueError(f"{variable} is {' or '.join(values)}, not {value!r}")
    return value
