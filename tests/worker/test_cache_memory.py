"""Memory of the cache follows what replies use, not what they may use."""

import dataclasses

import numpy as np
import tiny_engine

# A row of 12k tokens in pages of 64, as pages of 2: the same tables and counts.
PAGE_TOKENS, LIMIT, MEAN_USE = 2, 384, 32
ROWS, PROMPT = 64, 8


def test_a_quarter_of_rows_times_limit_is_enough(tmp_path):
    """64 rows that may use 12k tokens each, and use 1k on average."""
    folder = tiny_engine.weights_folder(
        tmp_path / 'model', dataclasses.replace(tiny_engine.CONFIG, num_layers=1)
    )
    spec = tiny_engine.model_spec(
        folder,
        context_tokens=LIMIT,
        rows=ROWS,
        page_tokens=PAGE_TOKENS,
        cache_tokens=ROWS * LIMIT // 4,
        steps_per_chunk=4,
        attention_block_tokens=32,
    )
    # Flat enough a distribution that any of these letters ends one reply in 24.
    asked = [
        tiny_engine.request(
            index,
            text=f'{index:>{PROMPT}}',
            max_tokens=LIMIT - PROMPT,
            temperature=20.0,
            stop=tuple('abcdefghijk'),
        )
        for index in range(160)
    ]
    with tiny_engine.running(spec) as engine:
        replies, rollouts = engine.ask(asked)
        allocated = engine.model.state.cache[0][0].shape[0] - 1
        counts = engine.engine.take_counts()
        peak = engine.engine.peak_pages
        engine.forget()
        held = engine.engine.pages_held
    assert allocated * PAGE_TOKENS == ROWS * LIMIT // 4
    used = np.array([rollout.num_tokens for rollout in rollouts.values()])
    assert len(used) == len(asked) and {x.error for x in replies.values()} == {''}
    np.testing.assert_allclose(used.mean(), MEAN_USE, rtol=0.2)
    assert used.max() > 3 * MEAN_USE
    assert counts['preempted'] == 0
    # All rows were in use at once, which whole contexts would not have allowed.
    assert ROWS * PROMPT / PAGE_TOKENS < peak <= allocated < ROWS * LIMIT / PAGE_TOKENS
    assert held == 0
