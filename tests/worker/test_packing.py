"""Packing: every token lands once, and its loss looks where it should."""

import numpy as np
import pytest

from unimas_jax.worker import packing

SHAPE = packing.Shape.of(rows=2, tokens=10, logit_chunk_tokens=6)


def example(first, length, *, adapter=-1, targets=None):
    """Tokens first, first + 1, ...; all but the first token carry loss."""
    targets = np.arange(1, length) if targets is None else np.asarray(targets)
    return packing.Example(
        tokens=np.arange(first, first + length, dtype=np.int32),
        targets=targets,
        adapter=adapter,
        fields={'weight': targets / 10},
    )


def pack(examples):
    return packing.pack(examples, SHAPE, ['weight'])


def test_shape_bounds_the_logits_alive():
    assert SHAPE.chunk == 3 and SHAPE.slots == 12
    assert packing.Shape.of(rows=8, tokens=16, logit_chunk_tokens=4).chunk == 1
    assert packing.Shape.of(rows=1, tokens=16, logit_chunk_tokens=999).slots == 16


def test_first_fit_by_hand():
    # Rows of 10: 6 -> row 0, 5 -> row 1, 4 fills row 0, 5 fills row 1, 1 -> row 2.
    rows = packing.assign([6, 5, 4, 5, 1], [-1] * 5, row_tokens=10)
    assert rows == [[0, 2], [1, 3], [4]]


def test_a_row_holds_one_adapter():
    rows = packing.assign([2, 2, 2, 2], [0, 1, 0, 1], row_tokens=10)
    assert rows == [[0, 2], [1, 3]]


def test_packed_row_by_hand():
    packed = pack([example(100, 4), example(200, 3, targets=[2])])
    (batch,) = packed.microbatches
    np.testing.assert_array_equal(
        batch['tokens'][0], [100, 101, 102, 103, 200, 201, 202, 0, 0, 0]
    )
    np.testing.assert_array_equal(batch['positions'][0], [0, 1, 2, 3, 0, 1, 2, 0, 0, 0])
    np.testing.assert_array_equal(batch['segments'][0], [1, 1, 1, 1, 2, 2, 2, 0, 0, 0])
    # Slots: tokens 101, 102, 103 and 202, predicted one position earlier.
    np.testing.assert_array_equal(batch['source'][0, :4], [0, 1, 2, 5])
    np.testing.assert_array_equal(batch['target'][0, :4], [101, 102, 103, 202])
    np.testing.assert_allclose(batch['weight'][0, :4], [0.1, 0.2, 0.3, 0.2])
    np.testing.assert_array_equal(batch['mask'].sum(axis=1), [4, 0])
    assert batch['chunks'] == 2  # 4 slots in chunks of 3
    assert packed.places[1] == packing.Place(microbatch=0, row=0, start=3, stop=4)
    assert packed.padding_waste == pytest.approx(1 - 7 / 20)


@pytest.mark.parametrize('seed', range(5))
def test_every_target_is_found_again(seed):
    generator = np.random.default_rng(seed)
    examples = []
    for index in range(30):
        length = int(generator.integers(1, 11))
        wanted = np.flatnonzero(generator.random(length) < 0.5)
        examples.append(
            example(
                1000 * index,
                length,
                adapter=index % 3 - 1,
                targets=wanted[wanted > 0],
            )
        )
    packed = pack(examples)
    found = packed.gather(packed.microbatches, 'target')
    weights = packed.gather(packed.microbatches, 'weight')
    for index, item in enumerate(examples):
        np.testing.assert_array_equal(found[index], item.tokens[item.targets])
        np.testing.assert_array_equal(
            weights[index], item.fields['weight'].astype(np.float32)
        )
        place = packed.places[index]
        batch = packed.microbatches[place.microbatch]
        assert batch['adapter'][place.row] == item.adapter
    total = sum(int((batch['segments'] > 0).sum()) for batch in packed.microbatches)
    assert total == packed.num_tokens == sum(len(x.tokens) for x in examples)
    # The source of a slot lies in the segment of its target, one token before it.
    for batch in packed.microbatches:
        row, slot = np.nonzero(batch['mask'])
        source = batch['source'][row, slot]
        np.testing.assert_array_equal(
            batch['tokens'][row, source + 1], batch['target'][row, slot]
        )
        np.testing.assert_array_equal(
            batch['segments'][row, source + 1], batch['segments'][row, source]
        )


def test_a_minibatch_without_examples_is_padding():
    packed = pack([])
    (batch,) = packed.microbatches
    assert not batch['mask'].any() and batch['chunks'] == 0
    assert packed.padding_waste == 1.0


@pytest.mark.parametrize('count, parts', [(12, 4), (13, 4), (2, 4), (0, 2)])
def test_minibatches_cover_every_rollout_once(count, parts):
    split = packing.minibatches(count, parts=parts, seed=(0, 1, 2))
    assert len(split) == parts
    assert sorted(np.concatenate(split)) == list(range(count))
    sizes = [len(part) for part in split]
    assert max(sizes) - min(sizes) <= 1
    assert all((np.diff(part) > 0).all() for part in split)


def test_minibatches_depend_on_the_seed_alone():
    first = packing.minibatches(20, parts=2, seed=(7, 3, 0))
    again = packing.minibatches(20, parts=2, seed=(7, 3, 0))
    other = packing.minibatches(20, parts=2, seed=(7, 4, 0))
    np.testing.assert_array_equal(first[0], again[0])
    assert list(first[0]) != list(other[0])


def test_token_weights_by_hand():
    # Rollouts of 1, 3, 4 tokens; the last weighs double; roles a, a, b.
    weigh = lambda loss_mean: packing.token_weights(
        ['a', 'a', 'b'], [1, 3, 4], [1.0, 1.0, 2.0], loss_mean=loss_mean
    )
    # token: 1 + 3 + 8 = 12.
    np.testing.assert_allclose(weigh('token'), [1 / 12, 1 / 12, 2 / 12])
    # invocation: shares 1, 1, 2 of 4, spread over the tokens.
    np.testing.assert_allclose(weigh('invocation'), [1 / 4, 1 / 12, 1 / 8])
    # role: half for each role, by token inside.
    np.testing.assert_allclose(weigh('role'), [1 / 8, 1 / 8, 1 / 8])


@pytest.mark.parametrize('loss_mean', ['token', 'invocation', 'role'])
def test_token_weights_sum_to_one_or_to_nothing(loss_mean):
    generator = np.random.default_rng(0)
    counts = generator.integers(0, 9, 20)
    weights = generator.random(20) * (generator.random(20) < 0.8)
    roles = [f'role{i % 3}' for i in range(20)]
    shares = packing.token_weights(roles, counts, weights, loss_mean=loss_mean)
    assert np.dot(shares, counts) == pytest.approx(1)
    nothing = packing.token_weights(roles, counts, [0.0] * 20, loss_mean=loss_mean)
    assert nothing == [0.0] * 20
