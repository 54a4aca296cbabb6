"""Plans as arguments, and an engine whose device is scripted."""

import concurrent.futures
import queue

import fakes
import numpy as np
import pytest
import tiny_engine

from unimas_jax.trace import Key
from unimas_jax.worker import cache, launches, scheduler
from unimas_jax.worker.buffer import Buffer
from unimas_jax.worker.inference import Engine
from unimas_jax.worker.launches import RowSettings
from unimas_jax.worker.scheduler import Ticket
from unimas_jax.worker.tokenizer import PromptTokenizer

SIZES = cache.geometry(tiny_engine.model_spec('none', mesh=(2, 1, 1)))


WORDS = (3481908443, 4270424661)
"""BLAKE2b of the key's text, worked out with hashlib alone."""


def test_key_words_are_the_same_on_every_machine():
    key = Key('q7@0', 1, (2,), 'answer', 0, (), 3)
    assert launches.key_words(5, key) == (5, *WORDS)
    assert launches.key_words(5, key._replace(sample=2))[1:] != WORDS
    assert launches.key_words(6, key)[1:] == WORDS


def planned():
    """A plan for two prompts, of 11 and 3 tokens, on two shards."""
    state = scheduler.start(SIZES, prefix_cache=True)
    prompts = [np.arange(1, 12, dtype=np.int32), np.arange(20, 23, dtype=np.int32)]
    tickets = [
        Ticket(id=i, query=i, prompt=prompt, limit=5, adapter=i)
        for i, prompt in enumerate(prompts)
    ]
    return scheduler.plan(state, new=tickets)


def test_chunks_lie_with_their_shard():
    plan = planned()
    sampling = tiny_engine.request(0, temperature=0.5, top_k=3).sampling
    settings = {
        i: RowSettings(sampling=sampling, limit=5, stop_ids=(256,), words=(1, 2, 3 + i))
        for i in range(2)
    }
    (launch,) = plan.prefills
    args = launches.prefill_arguments(launch, settings, SIZES, num_stop_ids=2)
    # 4 chunks for each shard: the long prompt's two pages, then the short prompt.
    assert args['count'].tolist() == [8, 3, 0, 0, 3, 0, 0, 0]
    assert args['start'].tolist() == [0, 8, 0, 0, 0, 0, 0, 0]
    assert args['row'].tolist() == [-1, 0, -1, -1, 0, -1, -1, -1]
    assert args['tokens'][1].tolist() == [9, 10, 11, 0, 0, 0, 0, 0]
    assert args['table'][1, :3].tolist() == [1, 2, 0]
    assert args['adapter'].tolist() == [0, 0, -1, -1, 1, -1, -1, -1]
    assert args['stop_ids'][1].tolist() == [256, -1]
    assert args['words'][4].tolist() == [1, 2, 4]
    assert args['top_k'][4] == 3 and args['temperature'][4] == 0.5


def test_rows_lie_with_their_shard():
    plan = planned()
    args = launches.decode_arguments(plan, SIZES)
    assert args['keep'].tolist() == [True, False, False, False] * 2
    assert args['table'][0, :2].tolist() == [1, 2]
    assert int(args['steps']) == 4  # the first token comes from prefill
    counts = np.asarray([4, 0, 0, 0, 2, 0, 0, 0])
    tokens = np.arange(8 * 8).reshape(8, 8)
    outputs = dict(tokens=tokens, log_probs=-tokens, log_kept=0 * tokens, counts=counts)
    drawn = {
        x.id: x.tokens.tolist() for x in launches.chunk_tokens(plan, outputs, SIZES)
    }
    assert drawn == {0: [0, 1, 2, 3], 1: [32, 33]}


def scripted_engine(tmp_path, submit):
    tokenizer = PromptTokenizer(fakes.byte_tokenizer(tmp_path / 'tok', chat=False))
    replies = queue.SimpleQueue()
    engine = Engine(
        'model',
        tokenizer=tokenizer,
        sizes=SIZES,
        prefix_cache=True,
        buffer=Buffer(),
        submit=submit,
        deliver=lambda found: [replies.put(x) for x in found],
    )
    engine.running.add_done_callback(lambda _: replies.put(None))
    return engine, replies


def done(outputs):
    future = concurrent.futures.Future()
    future.set_result(outputs)
    return future


def test_broken_weights_stop_the_engine_with_a_clear_error(tmp_path):
    nans = np.full(8, np.nan, np.float32)
    outputs = dict(token=np.zeros(8, np.int32), log_prob=nans, log_kept=0 * nans)
    engine, replies = scripted_engine(tmp_path, lambda name, args: done(outputs))
    engine.ask([tiny_engine.request(0, max_tokens=1, step=3)])
    assert replies.get(timeout=30) is None
    with pytest.raises(FloatingPointError, match='model model .* step 3'):
        engine.running.result()
    engine.stop()


def test_an_error_of_the_device_reaches_whoever_waits(tmp_path):
    def submit(name, args):
        raise OSError('device lost')

    engine, replies = scripted_engine(tmp_path, submit)
    engine.ask([tiny_engine.request(0)])
    assert replies.get(timeout=30) is None
    with pytest.raises(OSError, match='device lost'):
        engine.running.result()
    engine.stop()
