"""Role calls: delivered in any order, batched, small on the wire."""

import asyncio

import pytest
import scripted_backend
import small_experiment

from unimas_jax.controller.backend import WorkerLost
from unimas_jax.controller.router import RequestRefused, Router
from unimas_jax.protocol import Reply, Segment
from unimas_jax.trace import Key

MAPPING = small_experiment.experiment().mapping
DRAFT, ANSWER = small_experiment.WORKFLOW.roles
SEGMENTS = (Segment(name='all', text='x' * 500),)
SPLIT = {'draft': 'left', 'answer': 'right'}
TOGETHER = {'draft': 'both', 'answer': 'both'}


def key(query, node='draft'):
    return Key(query, 0, (), node, 0, (), 0)


async def ask_all(backend, calls, *, endpoints=(), mapping=MAPPING, **asker):
    """Ask for every (query, role) at once; return replies and the wire's metrics."""
    await backend.start()
    asker = {'step': 1, 'purpose': 'train'} | asker
    async with Router(backend, mapping, endpoints=dict(endpoints)) as router:
        ask = router.asker(**asker)
        replies = await asyncio.gather(
            *(ask(key(q, role.name), role, SEGMENTS, None) for q, role in calls)
        )
        return replies, router.take_metrics()


def run(backend, calls, **asker):
    return asyncio.run(ask_all(backend, calls, **asker))


def test_replies_reach_their_callers_in_any_order():
    calls = [(f'q{i}', role) for i in range(20) for role in (DRAFT, ANSWER)]
    results = []
    for seed in (None, 1, 2):
        backend = scripted_backend.ScriptedBackend(SPLIT, shuffle=seed)
        replies, _ = run(backend, calls)
        assert [r.key for r in replies] == [key(q, role.name) for q, role in calls]
        results.append([reply.text for reply in replies])
    assert results[0] == results[1] == results[2]
    assert len(set(results[0])) > 3


def test_calls_that_wait_share_a_message():
    calls = [(f'q{i}', DRAFT) for i in range(50)]
    backend = scripted_backend.ScriptedBackend(TOGETHER)
    _, metrics = run(backend, calls)
    assert metrics['system/calls'] == 50
    assert metrics['system/calls_per_message'] == 50


def test_a_call_costs_less_than_two_kibibytes_beyond_its_text():
    """Alone in its message, where fixed costs are not shared."""
    backend = scripted_backend.ScriptedBackend(TOGETHER)
    _, metrics = run(backend, [('q', DRAFT)])
    assert 100 < metrics['system/wire_bytes_per_call'] < 2048
    _, many = run(backend, [(f'q{i}', DRAFT) for i in range(50)])
    assert many['system/wire_bytes_per_call'] < 512


def test_evaluation_overrides_the_temperature_and_keeps_no_rollout():
    seen = []
    backend = scripted_backend.ScriptedBackend(
        TOGETHER, reply=lambda request, weight: seen.append(request) or 'ok'
    )
    run(backend, [('q', DRAFT)], purpose='evaluate', temperature=0.0)
    assert seen[0].sampling.temperature == 0.0
    assert seen[0].sampling.max_tokens == DRAFT.sampling.max_tokens
    assert seen[0].purpose == 'evaluate' and not backend.waiting


def test_a_frozen_role_leaves_no_rollout_that_waits_for_credit():
    backend = scripted_backend.ScriptedBackend(TOGETHER)
    mapping = small_experiment.experiment(frozen=('draft',)).mapping
    run(backend, [('q', DRAFT), ('q', ANSWER)], mapping=mapping)
    assert list(backend.waiting) == [key('q', 'answer')]


def test_a_refused_call_says_which_role_and_why():
    backend = scripted_backend.ScriptedBackend(TOGETHER, reply=lambda r, w: None)
    with pytest.raises(RequestRefused, match="'draft'.*the prompt is too long"):
        run(backend, [('q', DRAFT)])


def test_a_lost_worker_wakes_the_callers_of_every_group():
    trouble = scripted_backend.once('request', 1)
    backend = scripted_backend.ScriptedBackend(SPLIT, trouble=trouble)

    async def ask_two():
        await backend.start()
        backend.collect = lambda group: asyncio.sleep(60)
        async with Router(backend, MAPPING, endpoints={}) as router:
            ask = router.asker(step=1, purpose='train')
            calls = [ask(key('q', r.name), r, SEGMENTS, None) for r in (DRAFT, ANSWER)]
            errors = await asyncio.gather(*calls, return_exceptions=True)
            with pytest.raises(WorkerLost):
                await ask(key('later'), DRAFT, SEGMENTS, None)
            return errors

    errors = asyncio.run(asyncio.wait_for(ask_two(), 10))
    assert [type(error) for error in errors] == [WorkerLost, WorkerLost]


def test_an_endpoint_plays_its_role():
    class Echo:
        async def reply(self, request):
            return Reply(key=request.key, step=request.step, text=request.role)

    backend = scripted_backend.ScriptedBackend(TOGETHER)
    (reply,), metrics = run(backend, [('q', DRAFT)], endpoints={'draft': Echo()})
    assert reply.text == 'draft' and metrics['system/calls'] == 0
