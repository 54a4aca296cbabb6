"""Rollouts wait, are credited, are taken; none is lost or counted twice."""

import numpy as np
import pytest

from unimas_jax.trace import Credit, Key
from unimas_jax.worker.buffer import Buffer, Rollout


def key(index, call=0):
    return Key(f'q{index}', 0, (), 'node', 0, (), call)


def rollout(index, *, step=0, tokens=4, call=0):
    floats = np.ones(tokens, np.float32)
    return Rollout(
        key=key(index, call),
        step=step,
        role='ask',
        prompt_ids=np.zeros(3, np.int32),
        response_ids=np.zeros(tokens, np.int32),
        response_mask=floats,
        log_probs=-floats,
        log_kept=0 * floats,
        policy_version=0,
    )


def credit(index, status='credited', **fields):
    return Credit(key=key(index), role='ask', model='m', status=status, **fields)


def by_key(*credits):
    return {x.key: x for x in credits}


def filled(*indices, step=0, **options):
    buffer = Buffer(**options)
    for index in indices:
        buffer.put(rollout(index, step=step), is_trained=True)
    return buffer


def test_credited_rollouts_are_taken_in_the_order_of_keys():
    buffer = filled(2, 0, 1)
    counts = buffer.credit(
        by_key(
            credit(1, reward=0.5, advantage=-1.0, weight=2.0),
            credit(0, 'masked', reason='time-out'),
            credit(2),
        )
    )
    assert counts == {'credited': 2, 'masked': 1, 'dropped': 0, 'refused': 0}
    taken = buffer.take(0)
    assert [x.key for x in taken] == [key(1), key(2)]
    assert (taken[0].reward, taken[0].advantage, taken[0].weight) == (0.5, -1.0, 2.0)
    assert buffer.take(0) == [] and buffer.num_tokens == 0


def test_a_rollout_without_credit_is_an_error_that_names_it():
    buffer = filled(0, 1)
    with pytest.raises(ValueError, match="1 rollouts wait .*'q1'"):
        buffer.credit(by_key(credit(0)))
    assert len(buffer.waiting(0)) == 2  # nothing was changed


def test_credit_for_an_absent_rollout_is_refused_and_counted():
    buffer = filled(0)
    counts = buffer.credit(by_key(credit(0), credit(7), credit(8, 'dropped')))
    assert counts == {'credited': 1, 'masked': 0, 'dropped': 1, 'refused': 1}
    assert buffer.num_refused == 1


def test_room_is_bounded_and_refusals_are_counted():
    buffer = Buffer(max_tokens=20)
    assert buffer.reserve(key(0), 15)
    assert not buffer.reserve(key(1), 6)
    assert buffer.num_refused == 1
    buffer.put(rollout(0), is_trained=True)  # 7 tokens, the reservation ends
    assert buffer.num_tokens == 7
    assert buffer.reserve(key(1), 13)
    buffer.release(key(1))
    assert buffer.num_tokens == 7


def test_a_later_call_takes_the_tokens_over():
    buffer = filled(0)
    stored = buffer.take_over(key(0), key(0, call=1))
    assert stored.key == key(0, call=1)
    assert buffer.take_over(key(0), key(0, call=2)) is None
    longer = rollout(0, tokens=9, call=1)
    buffer.put(longer, is_trained=True)
    assert buffer.waiting(0) == [longer]
    assert buffer.num_tokens == 12


def test_replies_that_are_not_trained_on_pass_by():
    buffer = Buffer(max_passing_tokens=15)
    for index in range(3):
        buffer.put(rollout(index), is_trained=False)
    assert buffer.waiting(0) == [] and buffer.num_tokens == 0
    assert buffer.take_over(key(0), key(0, call=1)) is None  # the oldest went
    assert buffer.take_over(key(2), key(2, call=1)) is not None


def test_clearing_a_step_leaves_the_others():
    buffer = filled(0, 1)
    buffer.put(rollout(2, step=1), is_trained=True)
    assert buffer.clear(0) == 2
    assert [x.key for x in buffer.waiting(1)] == [key(2)]
    assert buffer.num_tokens == 7
