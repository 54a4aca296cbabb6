"""What the parts say to each other.

Messages between controller and workers are a few hundred bytes and never hold tokens.
The interfaces at the end are what users plug in: tools and data sources.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, Self

from unimas_jax.specs import Sampling, WorkflowSpec
from unimas_jax.trace import Key, Query


@dataclasses.dataclass(frozen=True, kw_only=True)
class Segment:
    """A rendered prompt section; see `specs.Section`."""

    name: str
    text: str
    speaker: Literal['system', 'user'] = 'user'
    priority: int | None = None
    keep: Literal['head', 'tail'] = 'head'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """One role call.

    Attributes:
        key: Names the call; with step and run seed it fixes the random numbers.
        step: Training step, or the step whose policy is evaluated.
        purpose: `train` keeps the rollout for credit; `evaluate` does not.
        role: For metrics.
        model: Which model of the worker answers.
        adapter: Adapter index; -1 is the base.
        segments: The prompt. With `continues`, the text that follows the stored reply.
        prompt_tokens: Limit to which the worker cuts the prompt.
        sampling: How to sample.
        continues: The earlier call of this node whose stored tokens this one extends.
    """

    key: Key
    step: int
    purpose: Literal['train', 'evaluate'] = 'train'
    role: str
    model: str
    adapter: int = -1
    segments: tuple[Segment, ...]
    prompt_tokens: int
    sampling: Sampling
    continues: Key | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reply:
    """What a model said.

    Attributes:
        key: Of the request.
        step: Of the request.
        text: The reply, without the stop token. If the prompt opened a `<think>` block
            for it, the text begins with that mark, so that it can be read by itself.
        finish_reason: `stop` (a stop token or string) or `length`.
        prompt_tokens: Tokens read.
        response_tokens: Tokens emitted, the stop token included.
        cached_tokens: Prompt tokens whose cache pages were reused.
        mean_log_prob: Of the emitted tokens, at the sampling temperature.
        policy_version: Updates that the weights had seen.
        cuts: (section, tokens cut).
        error: Empty, or why the request was refused (one line); other fields are void.
    """

    key: Key
    step: int
    text: str = ''
    finish_reason: Literal['stop', 'length', 'refused'] = 'stop'
    prompt_tokens: int = 0
    response_tokens: int = 0
    cached_tokens: int = 0
    mean_log_prob: float = 0.0
    policy_version: int = 0
    cuts: tuple[tuple[str, int], ...] = ()
    error: str = ''


@dataclasses.dataclass(frozen=True, kw_only=True)
class Score:
    """What the trainer thinks of a waiting rollout.

    Attributes:
        key: The invocation.
        tokens: Response tokens that carry loss.
        value: The critic's estimate before the first response token; None without one.
        old_log_prob: Sum over the response, by the trainer, under the current weights.
        reference_log_prob: Sum under the reference; None without one.
    """

    key: Key
    tokens: int
    value: float | None
    old_log_prob: float
    reference_log_prob: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Demonstration:
    """One exchange to imitate in the supervised warm start.

    Attributes:
        role: Who speaks.
        segments: The prompt.
        text: The reply to imitate; the stop token is added.
        prompt_tokens: Limit to which the prompt is cut.
        thinking: As `Sampling.thinking` of the role.
    """

    role: str
    segments: tuple[Segment, ...]
    text: str
    prompt_tokens: int
    thinking: bool | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """What a worker did, for metrics.

    Attributes:
        metrics: Names to numbers, as `model/<id>/...`.
    """

    metrics: Mapping[str, float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Passage:
    """A piece of text that a retriever found; its tool returns a tuple of them.

    Attributes:
        title: May be empty.
        text: Without the title.
        id: As the corpus or the server names it; may be empty.
        score: The higher, the better; None if there is none.
    """

    title: str
    text: str
    id: str = ''
    score: float | None = None


class ServiceFailure(RuntimeError):
    """A tool or an endpoint failed for reasons that are not the policy's.

    It is retried in place and then masked: never a reward, never an empty result.
    """


class Session(Protocol):
    """A tool as one sample of one query sees it."""

    async def call(self, **arguments: Any) -> Any:
        """Run the tool once.

        Raises:
            ServiceFailure: Infrastructure failed; the same call may be tried again.
        """
        ...

    async def close(self) -> None:
        """Release what the session holds; called once on every exit path."""
        ...


class Tool(Protocol):
    """A tool of an experiment: small, picklable, built by a gin file.

    It may also have `sample()`, which returns what a result looks like; `unimas check`
    tries the workflow's functions on it.
    """

    async def start(self, data_dir: str) -> None:
        """Load indexes and check endpoints, once for each run.

        Args:
            data_dir: Folder to which relative paths of the tool refer.
        """
        ...

    async def open(self, query: Query) -> Session:
        """Return a session for one sample of `query`; stateless tools share one."""
        ...

    async def stop(self) -> None:
        """Release what `start` took."""
        ...


class Corpus(Protocol):
    """What a retriever searches: small, picklable, built by a gin file."""

    def passages(self, data_dir: str) -> Sequence[Passage]:
        """Return the passages in a fixed order, at least one.

        Args:
            data_dir: Folder to which relative paths of the corpus refer.

        Raises:
            SpecError: A file is missing or cannot be read.
        """
        ...


class StatelessTool:
    """A tool that holds nothing: a subclass defines `call` and is complete."""

    async def start(self, data_dir: str) -> None:
        """Load nothing."""

    async def open(self, query: Query) -> Self:
        """Return the tool itself."""
        return self

    async def close(self) -> None:
        """Release nothing."""

    async def stop(self) -> None:
        """Release nothing."""


class DataSource(Protocol):
    """Where queries come from: small, picklable, built by a gin file.

    It may also have `sample()`, which returns what a query looks like; `unimas check`
    and `unimas dryrun` use it where the data are not at hand.
    """

    def load(self, split: str, data_dir: str) -> Sequence[Query]:
        """Return a random-access sequence of queries.

        Args:
            split: `train`, `dev` or `test`.
            data_dir: Folder to which relative paths of the source refer.

        Raises:
            SpecError: A file is missing, or too many rows cannot be used.
        """
        ...


class DemonstrationSource(Protocol):
    """Where the supervised warm start gets its exchanges."""

    def load(self, data_dir: str, workflow: WorkflowSpec) -> Sequence[Demonstration]:
        """Return the demonstrations, in a fixed order."""
        ...
