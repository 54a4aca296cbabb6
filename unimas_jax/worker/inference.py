"""The sampler of one model, on the host: requests in, replies and rollouts out.

A thread takes in requests, asks the scheduler for a plan, launches it, waits for its
tokens once, and looks for replies that have ended. Stop tokens and limits are seen by
the device; stop strings are found here, at the token that completes them.

Invariants:
  - A request's tokens and log-probs depend on the run's seed, its step, key, prompt and
    sampling alone: not on arrival, neighbours, chunk length, shard or preemption.
  - Between steps no request is under way, and after `forget_prefixes` no page is held.
"""

import concurrent.futures
import dataclasses
import threading
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from unimas_jax.protocol import Reply, Request
from unimas_jax.worker import exchange, launches, scheduler
from unimas_jax.worker.buffer import Buffer
from unimas_jax.worker.cache import Geometry
from unimas_jax.worker.commands import Argument
from unimas_jax.worker.executor import Outputs, fetch
from unimas_jax.worker.launches import Drawn, RowSettings
from unimas_jax.worker.prompt_tokens import PromptUnfit
from unimas_jax.worker.scheduler import Ticket
from unimas_jax.worker.tokenizer import PromptTokenizer

Submit = Callable[[str, Mapping[str, Argument]], concurrent.futures.Future[Outputs]]
"""`(command, arguments) -> future outputs`, on the launching thread."""


@dataclasses.dataclass(eq=False, kw_only=True)
class Pending:
    """A request under way.

    Attributes:
        request: What was asked.
        reading: What the model reads.
        settings: Of its row.
        tokens: The reply so far.
        log_probs: Of its tokens.
        log_kept: Of its tokens.
        cached: Prompt tokens found in the cache.
        finish_reason: Empty while it goes on.
    """

    request: Request
    reading: exchange.Reading
    settings: RowSettings
    tokens: list[int] = dataclasses.field(default_factory=list)
    log_probs: list[float] = dataclasses.field(default_factory=list)
    log_kept: list[float] = dataclasses.field(default_factory=list)
    cached: int = 0
    finish_reason: str = ''


class Engine:
    """Samples replies of one model.

    Args:
        name: The model.
        tokenizer: Its tokenizer.
        sizes: Of its cache.
        prefix_cache: Whether prompts share pages.
        buffer: Where finished rollouts wait.
        submit: Launches a command of this model.
        deliver: Takes finished replies; called on the engine's thread.
    """

    def __init__(
        self,
        name: str,
        *,
        tokenizer: PromptTokenizer,
        sizes: Geometry,
        prefix_cache: bool,
        buffer: Buffer,
        submit: Submit,
        deliver: Callable[[Sequence[Reply]], None],
    ):
        self._name, self._tokenizer, self._sizes = name, tokenizer, sizes
        self._buffer, self._submit, self._deliver = buffer, submit, deliver
        self._state = scheduler.start(sizes, prefix_cache=prefix_cache)
        self._changed = threading.Condition()
        # Everything below, the buffer and the scheduler's state are guarded by it.
        self._pending: dict[int, Pending] = {}
        self._new: list[Ticket] = []
        self._drawn: dict[int, int] = {}
        self._finished: set[int] = set()
        self._next_id = 0
        self._stopping = False
        self.policy_version = 0
        self.counts = dict.fromkeys(COUNTS, 0)
        """Sums since the last `take_counts`."""
        self._thread = concurrent.futures.ThreadPoolExecutor(
            max_workers=1, thread_name_prefix=f'engine-{name}'
        )
        self.running: concurrent.futures.Future[None] = self._thread.submit(self._loop)
        """Done when the engine has stopped; holds the error if it failed."""

    @property
    def lock(self) -> threading.Condition:
        """Guards the buffer."""
        return self._changed

    @property
    def pages_held(self) -> int:
        """Cache pages in use or kept as prefixes."""
        with self._changed:
            return self._state.pages_held

    @property
    def peak_pages(self) -> int:
        """The most pages held at once so far."""
        with self._changed:
            return self._state.peak_pages

    def ask(self, requests: Sequence[Request]) -> list[Reply]:
        """Enqueue requests; return the replies of those that are refused."""
        # Tokenizing takes longer than anything else here and needs no lock.
        prepared = [(request, *self._prepare(request)) for request in requests]
        refused = []
        with self._changed:
            for request, pending, error in prepared:
                if pending is not None:
                    error = self._enqueue(pending)
                if error:
                    refused.append(
                        Reply(
                            key=request.key,
                            step=request.step,
                            finish_reason='refused',
                            policy_version=self.policy_version,
                            error=error,
                        )
                    )
            self._changed.notify_all()
        return refused

    def clear(self, step: int) -> int:
        """Give up the requests and rollouts of a step; return how many rollouts."""
        with self._changed:
            for id, pending in list(self._pending.items()):
                if pending.request.step == step:
                    self._buffer.release(pending.request.key)
                    del self._pending[id]
                    self._finished.add(id)
            self._new = [x for x in self._new if x.id in self._pending]
            self._changed.notify_all()
            return self._buffer.clear(step)

    def weights_changed(self, policy_version: int) -> None:
        """Drop every cached prefix: it was computed with other weights.

        Raises:
            RuntimeError: Requests are under way, whose cache would be stale.
        """
        with self._changed:
            if self._pending:
                raise RuntimeError(
                    f'model {self._name}: its weights are to change while '
                    f'{len(self._pending)} requests are under way; collect their '
                    'replies or clear their step first.'
                )
            self._changed.wait_for(lambda: self._stopping or self._is_settled())
            if self._stopping:
                self.running.result()
            scheduler.forget_prefixes(self._state)
            self.policy_version = policy_version

    def take_counts(self) -> dict[str, int]:
        """Return `counts` and start them anew."""
        with self._changed:
            taken, self.counts = self.counts, dict.fromkeys(COUNTS, 0)
            return taken

    def stop(self) -> None:
        """End the thread; requests under way stay unanswered."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.shutdown(wait=True)

    def _prepare(self, request: Request) -> tuple[Pending | None, str]:
        """Tokenize a request; return why it is refused instead, if it is."""
        earlier = None
        if request.continues is not None:
            with self._changed:
                earlier = self._buffer.take_over(request.continues, request.key)
            if earlier is None:
                return None, f'continues {tuple(request.continues)}: not stored.'
        try:
            reading = exchange.read(
                request,
                earlier,
                self._tokenizer,
                context_tokens=self._sizes.context_tokens,
            )
        except PromptUnfit as error:
            return None, f'role {request.role}: {error}'
        settings = RowSettings(
            sampling=request.sampling,
            limit=request.sampling.max_tokens,
            stop_ids=self._tokenizer.stop_ids,
            words=launches.key_words(request.step, request.key),
        )
        return Pending(request=request, reading=reading, settings=settings), ''

    def _enqueue(self, pending: Pending) -> str:
        """Queue a request; return why it is refused instead, if it is."""
        request, limit = pending.request, pending.settings.limit
        if request.purpose == 'train':
            reading = pending.reading
            new_tokens = len(reading.ids) - reading.num_stored + limit
            if not self._buffer.reserve(request.key, new_tokens):
                return 'the buffer of rollouts is full.'
        ticket = Ticket(
            id=self._next_id,
            query=(request.step, request.key.query),
            prompt=pending.reading.ids,
            limit=limit,
            adapter=request.adapter,
        )
        self._next_id += 1
        self._pending[ticket.id] = pending
        self._new.append(ticket)
        return ''

    def _loop(self) -> None:
        try:
            while self._turn():
                pass
        finally:
            # Whoever waits for this thread must learn that it has ended.
            with self._changed:
                self._stopping = True
                self._changed.notify_all()

    def _turn(self) -> bool:
        """Plan, launch, take in; False when the engine is to stop."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or not self._is_settled())
            if self._stopping:
                return False
            plan = self._plan()
            commands = self._commands(plan)
            self._changed.notify_all()
        futures = [self._submit(name, args) for name, args in commands]
        outputs = [fetch(future.result()) for future in futures]
        with self._changed:
            replies = self._take_in(plan, outputs)
        if replies:
            self._deliver(replies)
        return True

    def _is_settled(self) -> bool:
        return not (self._pending or self._new or self._finished)

    def _plan(self) -> scheduler.StepPlan:
        plan = scheduler.plan(
            self._state, new=self._new, drawn=self._drawn, finished=self._finished
        )
        self._new, self._drawn, self._finished = [], {}, set()
        for id in plan.preempted:
            pending = self._pending[id]
            pending.tokens, pending.log_probs, pending.log_kept = [], [], []
        for row in plan.rows.values():
            self._pending[row.ticket.id].cached = row.cached
        self.counts['preempted'] += len(plan.preempted)
        return plan

    def _commands(
        self, plan: scheduler.StepPlan
    ) -> list[tuple[str, Mapping[str, Argument]]]:
        settings = {id: pending.settings for id, pending in self._pending.items()}
        num_stop_ids = len(self._tokenizer.stop_ids)
        commands = [
            (
                'prefill',
                launches.prefill_arguments(
                    launch, settings, self._sizes, num_stop_ids=num_stop_ids
                ),
            )
            for launch in plan.prefills
        ]
        if plan.steps:
            commands.append(('decode', launches.decode_arguments(plan, self._sizes)))
        return commands

    def _take_in(
        self, plan: scheduler.StepPlan, outputs: list[dict[str, np.ndarray]]
    ) -> list[Reply]:
        """Note what was drawn; return the replies that have ended."""
        drawn: list[Drawn] = []
        num_prefills = len(plan.prefills)
        for launch, output in zip(plan.prefills, outputs[:num_prefills], strict=True):
            drawn += launches.first_tokens(launch, output, self._sizes)
        if plan.steps:
            said = launches.chunk_tokens(plan, outputs[-1], self._sizes)
            drawn += said
            self.counts['decode_tokens'] += sum(len(x.tokens) for x in said)
            steps = max((len(x.tokens) for x in said), default=0)
            num_rows = self._sizes.shards * self._sizes.rows
            self.counts['decode_slots'] += steps * num_rows
        for each in drawn:
            pending = self._pending.get(each.id)
            if pending is not None:  # Its step may have been cleared meanwhile.
                self._append(pending, each)
                self._drawn[each.id] = len(pending.tokens)
        replies = []
        for id in dict.fromkeys(each.id for each in drawn):
            pending = self._pending.get(id)
            if pending is not None and pending.finish_reason:
                replies.append(self._finish(pending))
                del self._pending[id]
                self._finished.add(id)
        return replies

    def _append(self, pending: Pending, drawn: Drawn) -> None:
        """Add tokens up to the one that ends the reply; later ones are dropped."""
        if not np.all(np.isfinite(drawn.log_probs)):
            raise FloatingPointError(
                f'model {self._name} gave a log-prob that is not finite in step '
                f'{pending.request.step}: its weights are broken.'
            )
        stops = pending.settings.sampling.stop
        for index, token in enumerate(drawn.tokens.tolist()):
            if pending.finish_reason:
                return
            pending.tokens.append(token)
            pending.log_probs.append(float(drawn.log_probs[index]))
            pending.log_kept.append(float(drawn.log_kept[index]))
            if token in pending.settings.stop_ids or (
                stops and self._ends_with(pending.tokens, stops)
            ):
                pending.finish_reason = 'stop'
            elif len(pending.tokens) == pending.settings.limit:
                pending.finish_reason = 'length'

    def _ends_with(self, tokens: list[int], stops: Sequence[str]) -> bool:
        """Whether the last token completes a stop string.

        A character is at most four tokens, so a short tail of them is enough.
        """
        longest = max(map(len, stops))
        tail = self._tokenizer.decode(tokens[-4 * longest - 4 :])
        before = self._tokenizer.decode(tokens[-4 * longest - 4 : -1])
        return any(tail.count(stop) > before.count(stop) for stop in stops)

    def _finish(self, pending: Pending) -> Reply:
        """Store the rollout and make the reply."""
        request, reading = pending.request, pending.reading
        floats = lambda values: np.asarray(values, np.float32)
        saying = exchange.Saying(
            ids=np.asarray(pending.tokens, np.int32),
            log_probs=floats(pending.log_probs),
            log_kept=floats(pending.log_kept),
            finish_reason='stop' if pending.finish_reason == 'stop' else 'length',
            policy_version=self.policy_version,
        )
        rollout = exchange.rollout_of(request, reading, saying)
        self._buffer.put(rollout, is_trained=request.purpose == 'train')
        self.counts['prompt_tokens'] += len(reading.ids)
        self.counts['cached_tokens'] += pending.cached
        self.counts['response_tokens'] += len(saying.ids)
        return exchange.reply_of(
            request, reading, saying, self._tokenizer, cached_tokens=pending.cached
        )


COUNTS: tuple[str, ...] = (
    'prompt_tokens',
    'cached_tokens',
    'response_tokens',
    'decode_tokens',
    'decode_slots',
    'preempted',
)
"""What an engine counts; decode slots are rows times steps, idle rows included."""
