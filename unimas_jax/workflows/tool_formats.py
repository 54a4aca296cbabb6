"""Formats of roles that may call tools before they answer; `formats` has the rules."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from unimas_jax.specs import check_types, require
from unimas_jax.workflows import formats, parsing
from unimas_jax.workflows.parsing import FormatError


class ToolCall(NamedTuple):
    """A role's wish to call a tool."""

    tool: str
    arguments: Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class CallTag:
    """A tag by which a role calls a tool, like `<search>who wrote it?</search>`.

    Attributes:
        name: Of the tag.
        tool: The tool that it calls.
        argument: The tool's argument that takes the content as text.
        arguments: Instead, names and types of the JSON object that the tag holds, which
            are the tool's arguments.
        render: `(result) -> str`, what the role gets to read.
    """

    name: str
    tool: str
    argument: str = ''
    arguments: Mapping[str, formats.Kind] = dataclasses.field(default_factory=dict)
    render: Callable[[Any], str] = str

    def __post_init__(self):
        check_types(self)
        formats.check_names('CallTag.name', (self.name,))
        require(
            bool(self.argument) != bool(self.arguments),
            'CallTag.argument',
            self.argument,
            'give either one argument or a mapping of arguments.',
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class WithTools:
    """The format of a role that may call tools before it answers.

    Attributes:
        answer: The format of the answer.
        calls: The tags that call tools. A reply with exactly one such tag is a call.
    """

    answer: Any
    calls: tuple[CallTag, ...]

    def __post_init__(self):
        check_types(self)
        formats.check_names('WithTools.calls', tuple(call.name for call in self.calls))

    def parse(self, text: str) -> Any:
        """Return the answer's value."""
        return self.answer.parse(text)

    def tool_call(self, text: str) -> ToolCall | None:
        """Return the call that a reply makes, or None if it makes none.

        Raises:
            FormatError: The reply makes several calls, or a malformed one.
        """
        text = parsing.without_thought(text)
        used = {name for _, name, _, _ in parsing.tag_marks(text, self._names)}
        if not used:
            return None
        if len(used) > 1:
            raise FormatError(f'a reply makes one call, not {sorted(used)}')
        call = next(call for call in self.calls if call.name in used)
        content = parsing.tag_contents(text, (call.name,))[call.name]
        if call.argument:
            return ToolCall(call.tool, {call.argument: content})
        return ToolCall(
            call.tool, formats.JsonObject(keys=call.arguments).parse(content)
        )

    def render_result(self, tool: str, result: Any) -> str:
        """Return what the role reads of a tool's result, in `<result>` tags."""
        call = next(call for call in self.calls if call.tool == tool)
        return f'<result>\n{call.render(result)}\n</result>\n'

    def describe(self) -> str:
        """Return the contract in words."""
        tags = ', '.join(f'<{name}>...</{name}>' for name in self._names)
        return (
            f'To use a tool, end your reply with one of: {tags}; its result follows. '
            f'Otherwise: {self.answer.describe()}'
        )

    def sample(self) -> str:
        """Return a legal answer."""
        return self.answer.sample()

    def sample_call(self) -> str:
        """Return a legal call of the first tool."""
        call = self.calls[0]
        content = 'sample'
        if call.arguments:
            content = formats.JsonObject(keys=call.arguments).sample()
        return f'<{call.name}>{content}</{call.name}>'

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(call.name for call in self.calls)
