"""Logical roles: what an agent is told, what it must answer, how it samples."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from unimas_jax.specs.checks import check_types, require


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sampling:
    """How one reply is sampled.

    Attributes:
        max_tokens: Longest reply in tokens, the stop token included; at least 1.
        temperature: Divides the logits; 0 means greedy.
        top_k: Keep the k likeliest tokens; 0 keeps all.
        top_p: Keep the smallest set of tokens with this mass, in (0, 1].
        stop: Strings that end the reply; the reply keeps the string.
        thinking: Whether the chat template asks for a `<think>` block, where it has
            such a switch; None leaves it to the template.
    """

    max_tokens: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    stop: tuple[str, ...] = ()
    thinking: bool | None = None

    def __post_init__(self):
        check_types(self)
        require(
            self.max_tokens >= 1,
            'Sampling.max_tokens',
            self.max_tokens,
            'use 1 or more.',
        )
        require(
            self.temperature >= 0,
            'Sampling.temperature',
            self.temperature,
            'use 0 (greedy) or more.',
        )
        require(
            self.top_k >= 0, 'Sampling.top_k', self.top_k, 'use 0 (all tokens) or more.'
        )
        require(
            0 < self.top_p <= 1, 'Sampling.top_p', self.top_p, 'use a number in (0, 1].'
        )
        require(
            all(self.stop), 'Sampling.stop', self.stop, 'a stop string cannot be empty.'
        )

    def ended(self, text: str) -> tuple[str, bool]:
        """Return a text up to its first stop string, and whether it has one."""
        ends = [text.find(stop) + len(stop) for stop in self.stop if stop in text]
        return (text[: min(ends)], True) if ends else (text, False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Section:
    """A piece of a prompt.

    Attributes:
        name: Names the section in reports of what was cut.
        text: A template; `{field}` is replaced by a field that the node reads.
            Doubled braces stand for themselves.
        speaker: Which chat message the section belongs to; neighbours with one
            speaker form one message.
        priority: Sections of the lowest priority are cut first; None is never cut.
        keep: Which end survives a cut.
    """

    name: str
    text: str
    speaker: Literal['system', 'user'] = 'user'
    priority: int | None = None
    keep: Literal['head', 'tail'] = 'head'

    def __post_init__(self):
        check_types(self)
        require(bool(self.name), 'Section.name', self.name, 'give the section a name.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoleSpec:
    """A logical agent.

    Attributes:
        name: Unique within the workflow.
        prompt: The sections, in the order in which they are read.
        format: An object whose `parse(text)` returns a typed value or raises
            `FormatError`; `unimas_jax.workflows.formats` has the usual ones. A role
            with tools also needs `tool_call(text)`, see `tool_formats.WithTools`.
        sampling: How replies are sampled in training.
        prompt_tokens: Longest prompt in tokens; longer ones are cut by priority.
        tools: Names of tools that the role may call inside its own node.
        max_tool_calls: Bound on tool calls in one invocation; a reply after that many
            is the answer, whatever it says.
        tool_timeout_seconds: Limit of one attempt of such a call.
        tool_retries: Further attempts after an infrastructure failure.
    """

    name: str
    prompt: tuple[Section, ...]
    format: Any
    sampling: Sampling
    prompt_tokens: int
    tools: tuple[str, ...] = ()
    max_tool_calls: int = 0
    tool_timeout_seconds: float = 30.0
    tool_retries: int = 3

    def __post_init__(self):
        check_types(self)
        where = f'RoleSpec({self.name!r})'
        require(
            self.name.isidentifier(),
            'RoleSpec.name',
            self.name,
            'use a Python identifier.',
        )
        require(bool(self.prompt), f'{where}.prompt', self.prompt, 'add a Section.')
        require(
            self.prompt_tokens >= 1,
            f'{where}.prompt_tokens',
            self.prompt_tokens,
            'use 1 or more.',
        )
        require(
            callable(getattr(self.format, 'parse', None)),
            f'{where}.format',
            self.format,
            'give an object with parse(text), like formats.Tag(name="answer").',
        )
        require(
            bool(self.tools) == (self.max_tool_calls > 0),
            f'{where}.max_tool_calls',
            self.max_tool_calls,
            f'a role with tools {self.tools!r} needs a bound above 0; without, 0.',
        )
        require(
            not self.tools or callable(getattr(self.format, 'tool_call', None)),
            f'{where}.format',
            self.format,
            'a role with tools needs one with tool_call(text): tool_formats.WithTools.',
        )
        require(
            self.tool_timeout_seconds > 0,
            f'{where}.tool_timeout_seconds',
            self.tool_timeout_seconds,
            'use a number above 0.',
        )
        require(
            self.tool_retries >= 0,
            f'{where}.tool_retries',
            self.tool_retries,
            'use 0 or more.',
        )

    def changed(self, fields: Mapping[str, Any]) -> 'RoleSpec':
        """Return this role with other sampling or another prompt limit.

        Args:
            fields: New values of fields of `Sampling`, or of `prompt_tokens`.

        Raises:
            SpecError: There is no such field, or a value is not acceptable.
        """
        known = [field.name for field in dataclasses.fields(Sampling)]
        for name in fields:
            require(
                name in (*known, 'prompt_tokens'),
                f'Experiment.roles[{self.name!r}]',
                name,
                f'no such field; use one of {[*known, "prompt_tokens"]}.',
            )
        sampling = {name: fields[name] for name in known if name in fields}
        return dataclasses.replace(
            self,
            sampling=dataclasses.replace(self.sampling, **sampling),
            prompt_tokens=fields.get('prompt_tokens', self.prompt_tokens),
        )
