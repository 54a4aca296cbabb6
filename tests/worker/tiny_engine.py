"""A tiny model's engine without a learner, for tests of sampling."""

import contextlib
import functools
import queue

import fakes
import jax
import numpy as np

from unimas_jax import specs
from unimas_jax.checkpoint import hf
from unimas_jax.models import attention, transformer
from unimas_jax.models.architecture import TransformerConfig
from unimas_jax.protocol import Request, Segment
from unimas_jax.trace import Key
from unimas_jax.worker import cache
from unimas_jax.worker.buffer import Buffer
from unimas_jax.worker.host import Host
from unimas_jax.worker.inference import Engine

CONFIG = TransformerConfig(
    family='llama',
    vocab_size=259,  # the byte tokenizer's; padded to 384
    width=64,
    num_layers=2,
    num_heads=8,
    num_kv_heads=8,
    head_dim=8,
    mlp_width=96,
    rope_theta=1e4,
    norm_eps=1e-5,
    tie_embeddings=True,
    max_positions=512,
)

WORDS = 'You are one role of a workflow. Answer the question with care.'


def weights_folder(folder, config=CONFIG, *, seed=1, chat=False):
    """Write random weights, twice as large as at birth, and a byte tokenizer."""
    params = transformer.init_params(config, jax.random.key(seed))
    # Flat distributions would hide mistakes: sharpen them.
    params['base']['embed']['table'] *= 8.0
    hf.export(folder, jax.device_get(params), config, source_folder=None)
    fakes.byte_tokenizer(folder, chat=chat)
    return str(folder)


def model_spec(folder, *, mesh=(1, 1, 1), context_tokens=128, adapters=None, **engine):
    """A specification with pages of 8 tokens and blocks of 16."""
    settings = dict(
        rows=8,
        page_tokens=8,
        prefill_rows=8,
        attention_block_tokens=16,
        steps_per_chunk=8,
    )
    return specs.ModelSpec(
        weights=folder,
        context_tokens=context_tokens,
        compute_dtype='float32',
        optimizer=specs.OptimizerSpec(learning_rate=1e-3),
        mesh=specs.MeshSpec(data=mesh[0], fsdp=mesh[1], tensor=mesh[2]),
        engine=specs.EngineSpec(**settings | engine),
        adapters=adapters,
    )


class TinyEngine:
    """A model's engine, its host and buffer."""

    def __init__(self, spec, *, seed=0, roles=('ask',)):
        self.host = Host(
            {'model': spec}, roles={'model': roles}, frozen=roles, seed=seed
        )
        self.report = self.host.start()
        self.buffer, self.replies = Buffer(), queue.SimpleQueue()
        self.engine = Engine(
            'model',
            tokenizer=self.host.tokenizers['model'],
            sizes=cache.geometry(spec),
            prefix_cache=spec.engine.prefix_cache,
            buffer=self.buffer,
            submit=functools.partial(self.host.executor.submit, 'model'),
            deliver=lambda replies: [self.replies.put(x) for x in replies],
        )
        self.engine.running.add_done_callback(lambda _: self.replies.put(None))

    @property
    def model(self):
        return self.host.models['model']

    def ask(self, requests):
        """Return replies and rollouts by key; the engine forgets both."""
        for reply in self.engine.ask(requests):
            self.replies.put(reply)
        replies = {}
        while len(replies) < len(requests):
            reply = self.replies.get(timeout=120)
            if reply is None:
                self.engine.running.result()
            replies[reply.key] = reply
        rollouts = {x.key: x for x in self.buffer.waiting(requests[0].step)}
        self.buffer.clear(requests[0].step)
        return replies, rollouts

    def forget(self):
        """Empty the prefix cache."""
        self.engine.weights_changed(self.engine.policy_version)

    def stop(self):
        self.engine.stop()
        self.host.executor.stop()


@contextlib.contextmanager
def running(spec, **options):
    engine = TinyEngine(spec, **options)
    try:
        yield engine
    finally:
        engine.stop()


def request(index, text='', *, max_tokens=20, step=0, continues=None, **sampling):
    """A request of query `index`; equal indices are equal calls."""
    text = text or f'{WORDS} {index} ' + 'why? ' * (index % 4)
    return Request(
        key=Key(f'q{index}', 0, (), 'node', 0, (), 0 if continues is None else 1),
        step=step,
        role='ask',
        model='model',
        segments=(Segment(name='all', text=text),),
        prompt_tokens=96,
        sampling=specs.Sampling(max_tokens=max_tokens, **sampling),
        continues=continues,
    )


@functools.cache
def _forward(config):
    def forward(params, tokens, segments):
        positions = np.arange(tokens.shape[1], dtype=np.int32)[None]
        hidden, _ = transformer.trunk(
            params,
            config,
            tokens,
            positions,
            attend=attention.train_attend(segments),
            compute_dtype=np.float32,
        )
        return transformer.logits(params, config, hidden)

    return jax.jit(forward)


def forward_logits(params, ids, *, config=CONFIG, length=128):
    """[N, V] logits that predict the token after each id, by a plain forward pass."""
    tokens = np.zeros((1, length), np.int32)
    tokens[0, : len(ids)] = ids
    segments = (np.arange(length) < len(ids)).astype(np.int32)[None]
    return np.asarray(_forward(config)(params, tokens, segments))[0, : len(ids)]


def forced_log_probs(params, rollout, *, config=CONFIG, length=128):
    """[N] log-probs of a rollout's response, token by token, in float64."""
    ids = np.concatenate([rollout.prompt_ids, rollout.response_ids])
    logits = forward_logits(params, ids, config=config, length=length)
    logits = logits.astype(np.float64) / rollout.temperature
    top = logits.max(axis=-1, keepdims=True)
    log_probs = logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))
    first = len(rollout.prompt_ids)
    return log_probs[np.arange(first - 1, len(ids) - 1), ids[first:]]
