"""The engine on one device: what it says, and that nothing but the request matters."""

import dataclasses

import numpy as np
import pytest
import tiny_engine
from tiny_engine import request


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    return tiny_engine.weights_folder(tmp_path_factory.mktemp('weights') / 'model')


@pytest.fixture(scope='module')
def engine(folder):
    with tiny_engine.running(tiny_engine.model_spec(folder)) as engine:
        yield engine


@pytest.fixture(scope='module')
def other_engine(folder):
    """Short chunks, no prefix cache, and room for two and a half contexts."""
    spec = tiny_engine.model_spec(
        folder, steps_per_chunk=3, prefix_cache=False, cache_tokens=320
    )
    with tiny_engine.running(spec) as engine:
        yield engine


MIXED = [
    request(0, temperature=1.0),
    request(1, temperature=0.0),
    request(2, temperature=0.7, max_tokens=1),
    request(3, temperature=1.3, top_k=5),
    request(4, top_p=0.5, max_tokens=9),
    request(5, temperature=0.5, top_k=40, top_p=0.9),
    request(6, text='?', max_tokens=30),
    request(7, text='x' * 60, max_tokens=30),
    *(request(i, max_tokens=5 + i) for i in range(8, 20)),
]


def assert_same(left, right):
    """The same tokens and the same bits of log-probs."""
    assert left.keys() == right.keys()
    for key, rollout in left.items():
        other = right[key]
        np.testing.assert_array_equal(rollout.response_ids, other.response_ids)
        np.testing.assert_array_equal(rollout.log_probs, other.log_probs)
        np.testing.assert_array_equal(rollout.log_kept, other.log_kept)
        assert rollout.finish_reason == other.finish_reason


@pytest.fixture(scope='module')
def said(engine):
    """Replies and rollouts of the mixed requests on a cold cache."""
    engine.forget()
    return engine.ask(MIXED)


def test_log_probs_equal_a_teacher_forced_pass(engine, said):
    _, rollouts = said
    assert len(rollouts) == len(MIXED)
    for rollout in rollouts.values():
        forced = tiny_engine.forced_log_probs(engine.model.state.rollout, rollout)
        # Float32 sums in another order.
        np.testing.assert_allclose(rollout.log_probs, forced, atol=1e-4)


def test_greedy_takes_the_argmax(engine, said):
    asked = MIXED[1]
    rollout = said[1][asked.key]
    ids = list(rollout.prompt_ids)
    for token in rollout.response_ids:
        logits = tiny_engine.forward_logits(engine.model.state.rollout, ids)
        assert token == np.argmax(logits[-1])
        ids.append(token)


def test_replies_report_what_was_read_and_said(said):
    replies, rollouts = said
    for asked in MIXED:
        reply, rollout = replies[asked.key], rollouts[asked.key]
        assert reply.error == ''
        assert reply.prompt_tokens == len(rollout.prompt_ids)
        assert reply.response_tokens == len(rollout.response_ids)
        assert reply.response_tokens <= asked.sampling.max_tokens
        assert reply.mean_log_prob == pytest.approx(np.mean(rollout.log_probs))
        assert bytes(rollout.prompt_ids.tolist()).decode() == asked.segments[0].text
        is_stopped = rollout.response_ids[-1] == 256
        assert reply.finish_reason == ('stop' if is_stopped else 'length')
        assert np.all(rollout.response_mask == 1)


def test_truncation_reports_the_mass_it_kept(said):
    kept = said[1][MIXED[3].key].log_kept
    assert np.all(kept < 0) and np.all(np.exp(kept) > 5 / 259)
    assert np.all(said[1][MIXED[0].key].log_kept == 0)


def test_arrival_order_does_not_matter(engine, said):
    order = np.random.default_rng(0).permutation(len(MIXED))
    engine.forget()
    _, rollouts = engine.ask([MIXED[i] for i in order])
    assert_same(rollouts, said[1])


def test_a_warm_prefix_cache_changes_nothing(engine, said):
    replies, rollouts = engine.ask(MIXED)
    assert sum(reply.cached_tokens for reply in replies.values()) > 300
    assert_same(rollouts, said[1])


def test_neighbours_do_not_matter(engine, said):
    """Each request alone, beside idle rows that hold what others left there."""
    for asked in MIXED[:4]:
        _, rollouts = engine.ask([asked])
        assert_same(rollouts, {asked.key: said[1][asked.key]})


def test_chunk_length_and_preemption_do_not_matter(other_engine, said):
    _, rollouts = other_engine.ask(MIXED)
    assert other_engine.engine.take_counts()['preempted'] > 0
    assert_same(rollouts, said[1])


def test_another_step_or_key_gives_other_tokens(engine, said):
    asked = dataclasses.replace(MIXED[0], step=1)
    _, rollouts = engine.ask([asked])
    first = said[1][asked.key].response_ids
    assert rollouts[asked.key].response_ids.tolist() != first.tolist()


def test_samples_of_a_query_differ_and_share_pages(engine):
    engine.forget()
    first = request(0, max_tokens=12)
    second = dataclasses.replace(first, key=first.key._replace(sample=1))
    replies, rollouts = engine.ask([first, second])
    assert (
        replies[second.key].cached_tokens
        == len(rollouts[first.key].prompt_ids) // 8 * 8
    )
    texts = {tuple(x.response_ids.tolist()) for x in rollouts.values()}
    assert len(texts) == 2


def test_no_page_is_held_after_a_step(engine, said):
    engine.ask(MIXED)
    assert engine.engine.pages_held > 0  # prefixes
    engine.forget()
    assert engine.engine.pages_held == 0


def test_idle_pages_are_never_read(engine, said):
    """Poison everything in the cache; nothing of it may reach a reply."""
    engine.forget()
    state = engine.model.state
    state.cache = tuple(
        tuple(pages + np.float32(1e6) for pages in layer) for layer in state.cache
    )
    _, rollouts = engine.ask(MIXED)
    assert_same(rollouts, said[1])


def stop_pair(said):
    """A request and the place of two ASCII tokens that its reply has only there."""
    for asked in MIXED:
        ids = said[1][asked.key].response_ids.tolist()
        for at in range(3, len(ids) - 2):
            pair = ids[at : at + 2]
            earlier = [ids[i : i + 2] for i in range(at)]
            if all(32 < token < 127 for token in pair) and pair not in earlier:
                return asked, at, bytes(pair).decode()
    raise AssertionError('no reply has such tokens: choose another seed.')


@pytest.mark.parametrize('which', ['engine', 'other_engine'])
def test_stop_string_ends_at_the_token_that_completes_it(which, said, request):
    engine = request.getfixturevalue(which)
    asked, at, stop = stop_pair(said)
    plain = said[1][asked.key]
    sampling = dataclasses.replace(asked.sampling, stop=('never said', stop))
    replies, rollouts = engine.ask([dataclasses.replace(asked, sampling=sampling)])
    rollout = rollouts[asked.key]
    np.testing.assert_array_equal(rollout.response_ids, plain.response_ids[: at + 2])
    np.testing.assert_array_equal(rollout.log_probs, plain.log_probs[: at + 2])
    assert replies[asked.key].finish_reason == 'stop'
    assert replies[asked.key].text.endswith(stop)


def test_stop_token_is_kept_but_not_shown(engine):
    """Among many replies, some end with the stop token."""
    asked = [request(i, max_tokens=40, temperature=3.0) for i in range(100, 140)]
    replies, rollouts = engine.ask(asked)
    stopped = [key for key, x in replies.items() if x.finish_reason == 'stop']
    assert stopped
    for key in stopped:
        assert rollouts[key].response_ids[-1] == 256
        assert rollouts[key].response_mask[-1] == 1 and rollouts[key].log_probs[-1] < 0
        assert '<|endoftext|>' not in replies[key].text
        assert len(rollouts[key].response_ids) == replies[key].response_tokens


def test_a_continued_reply_keeps_its_tokens(engine):
    first = request(50, text='call a tool', max_tokens=6)
    engine.engine.ask([first])
    assert engine.replies.get(timeout=60).key == first.key
    second = request(50, text='the result', max_tokens=5, continues=first.key)
    replies, rollouts = engine.ask([second])
    rollout = rollouts[second.key]
    assert first.key not in rollouts  # its tokens live on in the later call
    assert rollout.response_mask.tolist() == [1] * 6 + [0] * 10 + [1] * 5
    assert bytes(rollout.response_ids[6:16].tolist()) == b'the result'
    assert replies[second.key].prompt_tokens == 11 + 6 + 10
    assert replies[second.key].response_tokens == 5
    forced = tiny_engine.forced_log_probs(engine.model.state.rollout, rollout)
    spoken = rollout.response_mask > 0
    np.testing.assert_allclose(rollout.log_probs[spoken], forced[spoken], atol=1e-4)
    assert np.all(rollout.log_probs[~spoken] == 0)


def test_refusals_say_why(engine):
    too_long = request(60, text='x' * 97, max_tokens=10)
    unknown = request(61, continues=request(62).key)
    empty = dataclasses.replace(request(63), segments=())
    replies, rollouts = engine.ask([too_long, unknown, empty])
    assert not rollouts
    assert 'raise prompt_tokens' in replies[too_long.key].error
    assert 'not stored' in replies[unknown.key].error
    assert 'empty' in replies[empty.key].error
    assert {x.finish_reason for x in replies.values()} == {'refused'}


def test_clearing_a_step_stops_its_requests(engine):
    engine.engine.ask([request(i, max_tokens=60) for i in range(70, 100)])
    engine.engine.clear(0)
    engine.forget()  # waits until rows and pages are free
    assert engine.engine.pages_held == 0
    replies, _ = engine.ask([request(0, step=3)])
    assert next(iter(replies.values())).step == 3


def test_weights_cannot_change_under_a_request(engine):
    engine.engine.ask([request(i, max_tokens=60, step=4) for i in range(30)])
    with pytest.raises(RuntimeError, match='requests are under way'):
        engine.forget()
    engine.engine.clear(4)
    engine.forget()
