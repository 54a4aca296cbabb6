"""What a model reads and what is kept of its reply, without a model."""

import fakes
import numpy as np
import pytest

from unimas_jax.protocol import Request, Segment
from unimas_jax.specs import Sampling
from unimas_jax.trace import Key
from unimas_jax.worker import exchange
from unimas_jax.worker.prompt_tokens import PromptUnfit
from unimas_jax.worker.tokenizer import PromptTokenizer

END = 258


@pytest.fixture(scope='module')
def opening(tmp_path_factory):
    """A tokenizer whose template begins the thought."""
    folder = tmp_path_factory.mktemp('opening')
    return PromptTokenizer(
        fakes.byte_tokenizer(folder, template=fakes.OPENING_TEMPLATE)
    )


def request(text, *, call=0, **fields):
    sampling = {'max_tokens': 8, 'temperature': 0.5} | fields
    return Request(
        key=Key('q', 0, (), 'node', 0, (), call),
        step=1,
        role='role',
        model='m',
        segments=(Segment(name='all', text=text, priority=0),),
        prompt_tokens=60,
        sampling=Sampling(**sampling),
    )


def said(text, *, finish_reason='stop'):
    ids = np.asarray([*text.encode(), *([END] if finish_reason == 'stop' else [])])
    return exchange.Saying(
        ids=ids.astype(np.int32),
        log_probs=np.full(len(ids), -0.5, np.float32),
        log_kept=np.zeros(len(ids), np.float32),
        finish_reason=finish_reason,
        policy_version=3,
    )


def test_a_reply_can_be_read_without_its_prompt(opening):
    """A thought that the prompt opened, and the length limit cut, looks like one."""
    asked = request('A')
    reading = exchange.read(asked, None, opening, context_tokens=99)
    whole, cut = said('hm</think>x'), said('hm', finish_reason='length')
    replies = [
        exchange.reply_of(asked, reading, each, opening) for each in (whole, cut)
    ]
    assert [r.text for r in replies] == ['<think>hm</think>x', '<think>hm']
    # The mark stands in the prompt: the rollout has it once.
    rollout = exchange.rollout_of(asked, reading, whole)
    assert opening.decode(rollout.prompt_ids).endswith('assistant\n<think>\n')
    assert opening.decode(rollout.response_ids) == 'hm</think>x'
    assert (replies[0].prompt_tokens, replies[0].response_tokens) == (
        len(rollout.prompt_ids),
        12,
    )


def test_a_prompt_leaves_room_for_the_longest_reply(opening):
    reading = exchange.read(request('A' * 50), None, opening, context_tokens=58)
    assert len(reading.ids) == 58 - 8
    frame = len(exchange.read(request('A'), None, opening, context_tokens=99).ids) - 1
    assert reading.cuts == (('all', frame),)
    with pytest.raises(PromptUnfit, match='8 tokens after 0 does not fit into'):
        exchange.read(request('A'), None, opening, context_tokens=8)


def test_text_between_two_replies_carries_no_loss(opening):
    first, second = request('A'), request('result', call=2)
    reading = exchange.read(first, None, opening, context_tokens=199)
    earlier = exchange.rollout_of(first, reading, said('call'))
    later = exchange.read(second, earlier, opening, context_tokens=199)
    rollout = exchange.rollout_of(second, later, said('done'))
    assert later.num_stored == earlier.num_tokens
    assert rollout.prompt_ids.tolist() == earlier.prompt_ids.tolist()
    spoken = rollout.response_ids[rollout.response_mask > 0]
    assert opening.decode(spoken) == 'calldone'
    silent = rollout.response_ids[rollout.response_mask == 0]
    assert 'result' in opening.decode(silent)
    assert rollout.log_probs[rollout.response_mask == 0].tolist() == [0.0] * len(silent)
    assert exchange.score_of(rollout_scored(rollout)).tokens == len(spoken) == 10


def rollout_scored(rollout):
    """The rollout, scored with -2 on every emitted token and poison elsewhere."""
    rollout.old_log_prob = np.where(rollout.response_mask > 0, -2.0, 1e6)
    return rollout


def test_sums_of_a_rollout_leave_out_what_was_not_said(opening):
    first, second = request('A'), request('result', call=2)
    reading = exchange.read(first, None, opening, context_tokens=199)
    earlier = exchange.rollout_of(first, reading, said('call'))
    later = exchange.read(second, earlier, opening, context_tokens=199)
    score = exchange.score_of(
        rollout_scored(exchange.rollout_of(second, later, said('done')))
    )
    assert (score.old_log_prob, score.value) == (-20.0, None)
