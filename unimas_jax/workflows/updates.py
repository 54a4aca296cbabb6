"""The usual functions of nodes, as plain data: they pickle and compare.

RoleNode(..., update=updates.Keep('answer'), invalid=updates.Put({'answer': ''}))
ToolNode(..., arguments=updates.Take({'query': 'sub_query'}))
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from unimas_jax.specs import check_types


@dataclasses.dataclass(frozen=True)
class Keep:
    """As `update`: write the parsed reply or the tool's result to one field."""

    field: str

    def __post_init__(self):
        check_types(self)

    def __call__(self, state: Mapping[str, Any], value: Any) -> dict[str, Any]:
        """Return the field to write."""
        return {self.field: value}


@dataclasses.dataclass(frozen=True)
class Put:
    """As `invalid` or `update`: write fixed values; none leaves the state as it is."""

    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        check_types(self)

    def __call__(self, state: Mapping[str, Any], value: Any) -> dict[str, Any]:
        """Return the fields to write."""
        return dict(self.fields)


@dataclasses.dataclass(frozen=True)
class Take:
    """As `arguments` or `view`: state fields under the names that are wanted.

    Attributes:
        names: Wanted name to state field.
    """

    names: Mapping[str, str]

    def __post_init__(self):
        check_types(self)

    def __call__(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Return the named values."""
        return {name: state[field] for name, field in self.names.items()}
