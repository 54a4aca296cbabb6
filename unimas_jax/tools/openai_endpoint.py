"""Roles played by an OpenAI-compatible chat endpoint.

The key is read from the environment for each request and stands in no message, log or
pickle. Stop strings are applied here, since the protocol's own do not say where they
struck; prompts are not cut to `prompt_tokens`, which only the endpoint could count.
"""

import asyncio
import os
import random
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import httpx

from unimas_jax.protocol import Reply, Request, Segment, ServiceFailure
from unimas_jax.specs import EndpointSpec, Sampling, SpecError
from unimas_jax.tools.lru import LruCache
from unimas_jax.tools.retrieval_api import shorten
from unimas_jax.trace import Key

Messages = list[dict[str, str]]

BACKOFF_SECONDS = 0.5
"""Wait before the second attempt; doubled for each further one, plus up to as much."""

MAX_BACKOFF_SECONDS = 30.0

MAX_CONNECTIONS = 64

CONVERSATIONS = 10_000
"""Conversations remembered for calls that continue one."""

_AGAIN = (408, 409, 425, 429)
_DENIED = (401, 403)
_FINISHED: Mapping[str, Literal['stop', 'length']] = {
    'stop': 'stop',
    'length': 'length',
}


class ChatEndpoint:
    """Answers role calls; used by one event loop."""

    def __init__(self, spec: EndpointSpec):
        """Hold a connection pool for the endpoint.

        Raises:
            SpecError: The variable with the key is not set.
        """
        self._spec = spec
        self._headers()
        self._client = httpx.AsyncClient(
            timeout=httpx.Timeout(spec.timeout_seconds, pool=None),
            limits=httpx.Limits(max_connections=MAX_CONNECTIONS),
        )
        self._jitter = random.Random()
        self._conversations: LruCache[tuple[int, Key], Messages] = LruCache(
            CONVERSATIONS
        )

    async def reply(self, request: Request) -> Reply:
        """Answer one call.

        Raises:
            ServiceFailure: The endpoint failed at every attempt, or refused.
        """
        messages = self._history(request) + messages_of(request.segments)
        body = body_of(self._spec.model, messages, request.sampling)
        # Equal calls get equal replies where the endpoint honours it.
        body['seed'] = zlib.crc32(repr((request.step, request.key)).encode()) >> 1
        answer = await self._ask(body)
        reply = reply_of(answer, request)
        said = {'role': 'assistant', 'content': reply.text}
        self._conversations.put((request.step, request.key), [*messages, said])
        return reply

    async def stop(self) -> None:
        """Close connections."""
        await self._client.aclose()

    def _history(self, request: Request) -> Messages:
        if request.continues is None:
            return []
        known = self._conversations.get((request.step, request.continues))
        if known is None:
            raise ServiceFailure(
                f'the conversation of {request.continues} is forgotten'
            )
        return known

    async def _ask(self, body: dict[str, Any]) -> Any:
        pause = BACKOFF_SECONDS
        for attempts_left in range(self._spec.retries, -1, -1):
            try:
                return await self._post(body)
            except httpx.HTTPError as error:
                reason = str(error) or type(error).__name__
                failure = ServiceFailure(f'{self._spec.url}: {reason}')
                if isinstance(error, httpx.HTTPStatusError) and not _is_passing(error):
                    raise failure from error
            except ValueError as error:
                failure = ServiceFailure(f'{self._spec.url}: not JSON ({error})')
            if attempts_left:
                await asyncio.sleep(pause * (1 + self._jitter.random()))
                pause = min(2 * pause, MAX_BACKOFF_SECONDS)
        raise ServiceFailure(f'{failure} (after {self._spec.retries + 1} attempts)')

    async def _post(self, body: dict[str, Any]) -> Any:
        url = f'{self._spec.url.rstrip("/")}/chat/completions'
        response = await self._client.post(url, json=body, headers=self._headers())
        if response.status_code != 200:
            raise httpx.HTTPStatusError(
                self._describe(response), request=response.request, response=response
            )
        return response.json()

    def _describe(self, response: httpx.Response) -> str:
        if response.status_code in _DENIED:
            # The body may repeat the key.
            variable = self._spec.api_key_variable
            return f'status {response.status_code}; check the key in {variable!r}'
        return f'status {response.status_code}, {shorten(response.text)}'

    def _headers(self) -> dict[str, str]:
        variable = self._spec.api_key_variable
        if not variable:
            return {}
        if not os.environ.get(variable):
            raise SpecError(
                f'EndpointSpec.api_key_variable is {variable!r}: this environment '
                'variable is not set; set it to the key.'
            )
        return {'Authorization': f'Bearer {os.environ[variable]}'}


def _is_passing(error: httpx.HTTPStatusError) -> bool:
    """Whether another attempt may go better."""
    status = error.response.status_code
    return status >= 500 or status in _AGAIN


def messages_of(segments: Sequence[Segment]) -> Messages:
    """Return chat messages; neighbours with one speaker share a message."""
    messages: Messages = []
    for segment in segments:
        if messages and messages[-1]['role'] == segment.speaker:
            messages[-1]['content'] += segment.text
        else:
            messages.append({'role': segment.speaker, 'content': segment.text})
    return messages


def body_of(model: str, messages: Messages, sampling: Sampling) -> dict[str, Any]:
    """Return a request's body.

    `top_k` and the switch for thoughts are extensions, sent only where they are used.
    """
    body: dict[str, Any] = {
        'model': model,
        'messages': messages,
        'max_tokens': sampling.max_tokens,
        'temperature': sampling.temperature,
        'top_p': sampling.top_p,
    }
    if sampling.top_k:
        body['top_k'] = sampling.top_k
    if sampling.thinking is not None:
        body['chat_template_kwargs'] = {'enable_thinking': sampling.thinking}
    return body


def reply_of(answer: Any, request: Request) -> Reply:
    """Return the reply inside an answer, ended at the first stop string.

    Raises:
        ServiceFailure: The answer has another form, or was withheld.
    """
    try:
        choice = answer['choices'][0]
        text, reason = _text(choice['message']), choice.get('finish_reason')
        usage = answer.get('usage') or {}
        prompt_tokens = int(usage.get('prompt_tokens', 0))
        response_tokens = int(usage.get('completion_tokens', 0))
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise ServiceFailure(
            f'endpoint: not a completion: {shorten(answer)}'
        ) from error
    if not isinstance(text, str) or reason not in _FINISHED:
        raise ServiceFailure(f'endpoint: no text, finish_reason is {reason!r}')
    text, is_ended = request.sampling.ended(text)
    return Reply(
        key=request.key,
        step=request.step,
        text=text,
        finish_reason='stop' if is_ended else _FINISHED[reason],
        prompt_tokens=prompt_tokens,
        response_tokens=response_tokens,
    )


def _text(message: Mapping[str, Any]) -> Any:
    """Return what a message says, with the thought that a server took out of it.

    A reply cut within its thought has no content; its thought does not end.
    """
    said = message['content']
    thought = message.get('reasoning') or message.get('reasoning_content')
    if not isinstance(thought, str) or not thought:
        return said
    return f'<think>{thought}</think>{said}' if said else f'<think>{thought}'
