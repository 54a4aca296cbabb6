"""The numbered list of device work that every process of a host group executes."""

import dataclasses
from collections.abc import Mapping

import numpy as np

Argument = np.ndarray | int | float | str | bool
"""What a command may carry: plain host data, the same on every process."""


class CommandGap(RuntimeError):
    """A process saw a command out of turn; its group has diverged and must stop."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    """One piece of device work of one model.

    Attributes:
        number: Counts the commands of a host group from 0, without gaps.
        model: Name of the model whose state the command reads or changes.
        name: An entry of the model's table of programs.
        args: Arguments by name.
    """

    number: int
    model: str
    name: str
    args: Mapping[str, Argument]
