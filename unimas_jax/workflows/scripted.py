"""Replies without a model, for dry runs and tests: computed, or recorded.

A scripted `ask` answers as the engine expects it from a model. Replies depend on role,
prompt and key alone, so that a dry run gives the same trace each time.
"""

import json
import random
from collections.abc import Callable, Sequence

from etils import epath

from unimas_jax import protocol
from unimas_jax.specs import RoleSpec, SpecError
from unimas_jax.trace import Key
from unimas_jax.workflows.invoking import Ask

Script = Callable[[str, tuple[protocol.Segment, ...], Key], str]
"""`(role name, prompt, key) -> text` of the reply."""


def scripted_ask(script: Script) -> Ask:
    """Return an `ask` that replies what a script says.

    Tokens are counted as words, and a reply longer than the role's limit is cut there,
    with finish reason `length`.
    """

    async def ask(
        key: Key,
        role: RoleSpec,
        segments: tuple[protocol.Segment, ...],
        continues: Key | None,
    ) -> protocol.Reply:
        words = script(role.name, segments, key).split(' ')
        limit = role.sampling.max_tokens
        return protocol.Reply(
            key=key,
            step=0,
            text=' '.join(words[:limit]),
            finish_reason='stop' if len(words) <= limit else 'length',
            prompt_tokens=sum(len(segment.text.split()) for segment in segments),
            response_tokens=min(len(words), limit),
        )

    return ask


def sample_script(roles: Sequence[RoleSpec]) -> Script:
    """Return a script in which each role gives the sample reply of its format.

    Raises:
        SpecError: A role's format has no `sample()`.
    """
    samples = {}
    for role in roles:
        if not callable(getattr(role.format, 'sample', None)):
            raise SpecError(
                f'RoleSpec({role.name!r}).format is {role.format!r}: give it sample(), '
                'a legal reply, to run the workflow without a model.'
            )
        samples[role.name] = role.format.sample()
    return lambda role, segments, key: samples[role]


def varied_script(roles: Sequence[RoleSpec], *, malformed: float, seed: int) -> Script:
    """Return a script of all that each role may say, some of it malformed.

    Formats with several kinds of legal replies list them in `samples()`; those of roles
    with tools give a call in `sample_call()`, which is made by half of the first calls.

    Args:
        roles: Who speaks.
        malformed: Share of malformed replies, in [0, 1]: cut in half, or empty.
        seed: With role and key it fixes the reply.

    Raises:
        SpecError: A role's format has no `sample()`.
    """
    sample = sample_script(roles)
    formats = {role.name: role.format for role in roles}
    tools = {role.name: bool(role.tools) for role in roles}

    def script(role: str, segments: tuple[protocol.Segment, ...], key: Key) -> str:
        draw = random.Random(repr((seed, role, tuple(key))))
        if draw.random() < malformed:
            whole = sample(role, segments, key)
            return draw.choice((whole[: len(whole) // 2], ''))
        if tools[role] and key.call == 0 and hasattr(formats[role], 'sample_call'):
            if draw.random() < 0.5:
                return formats[role].sample_call()
        if hasattr(formats[role], 'samples'):
            return draw.choice(formats[role].samples())
        return sample(role, segments, key)

    return script


class ScriptedPlayer:
    """A script in the place of a model or an endpoint; see `controller.router`."""

    def __init__(self, script: Script):
        """Hold the script."""
        self._script = script

    async def reply(self, request: protocol.Request) -> protocol.Reply:
        """Say what the script says; tokens are counted as words."""
        text = self._script(request.role, request.segments, request.key)
        text, _ = request.sampling.ended(text)
        return protocol.Reply(
            key=request.key,
            step=request.step,
            text=text,
            prompt_tokens=sum(len(x.text.split()) for x in request.segments),
            response_tokens=len(text.split()),
        )


def recorded_script(path: str) -> Script:
    """Return a script of recorded replies.

    Args:
        path: JSON Lines of `{"role": ..., "text": ...}`, optionally with `query` (its
            id, with or without the epoch), `node`, `turn` and `call` of the key. The
            last line that fits a call is its reply.

    Raises:
        SpecError: The file is missing or a line is malformed; or, when the script
            runs, a call has no reply.
    """
    if not epath.Path(path).exists():
        raise SpecError(f'replies {path!r}: no such file.')
    lines = []
    for number, line in enumerate(epath.Path(path).read_text().splitlines(), start=1):
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise SpecError(f'{path}, line {number}: not JSON: {error}') from error
        if not isinstance(record, dict) or not _REQUIRED <= set(record) <= _ALLOWED:
            raise SpecError(
                f'{path}, line {number}: the keys are {sorted(_REQUIRED)} and, if '
                f'wanted, {sorted(_ALLOWED - _REQUIRED)}.'
            )
        lines.append(record)

    def script(role: str, segments: tuple[protocol.Segment, ...], key: Key) -> str:
        fitting = {'role': (role,), 'query': (key.query, key.query.rpartition('@')[0])}
        fitting |= {name: (getattr(key, name),) for name in ('node', 'turn', 'call')}
        for record in reversed(lines):
            if all(record[n] in fitting[n] for n in record if n != 'text'):
                return record['text']
        raise SpecError(f'{path}: no reply for role {role!r} at {key}.')

    return script


_REQUIRED = {'role', 'text'}
_ALLOWED = _REQUIRED | {'query', 'node', 'turn', 'call'}
