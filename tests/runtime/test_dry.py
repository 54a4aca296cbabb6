"""A dry run does on the host what training does, to the token."""

import asyncio
import dataclasses

import pytest
import small_experiment

from unimas_jax import protocol, specs
from unimas_jax.controller import dry_run, step
from unimas_jax.controller.router import RequestRefused
from unimas_jax.rewards import credit
from unimas_jax.runtime import dry
from unimas_jax.trace import Query
from unimas_jax.worker.stand_in_tokenizer import StandInTokenizer
from unimas_jax.workflows import formats, tool_formats
from unimas_jax.workflows.scripted import ScriptedPlayer


def experiment(**changes):
    """Both roles on models with rows of 128 tokens, two to a micro-batch."""
    model = dataclasses.replace(
        small_experiment.MODEL,
        ppo=specs.PpoSpec(microbatch_rows=2, logit_chunk_tokens=64),
    )
    names = {'draft': model, 'answer': model}
    return small_experiment.experiment(**({'models': names} | changes))


def play(whole, script, *, queries=2, samples=2, endpoints=None):
    players = {name: StandInTokenizer() for name in whole.models}

    async def run():
        for tool in whole.tools.values():
            await tool.start('')
        runtime = dry.DryRuntime(whole, ScriptedPlayer(script), players)
        return await dry_run.play(
            whole,
            runtime,
            step.batch(
                whole.data.load('train', ''), cursor=0, count=queries, seed=whole.seed
            ),
            samples=samples,
            tools=whole.tools,
            endpoints=endpoints or {},
        )

    return asyncio.run(asyncio.wait_for(run(), 30))


def says(role, segments, key):
    """Two words of the draft, one of the answer: a for sample 0, b for sample 1."""
    return 'in brief' if role == 'draft' else 'ab'[key.sample]


def test_rewards_credit_and_batches_are_those_of_training():
    # The metric is ord(answer) % 10 / 10: a is 97, b is 98.
    whole = experiment(credit=credit.TrajectoryGrpo())
    played = play(whole, says)
    by_sample = {c.key.sample: c for c in played.credits}
    assert [by_sample[i].reward for i in (0, 1)] == pytest.approx([0.7, 0.8])
    assert [by_sample[i].advantage for i in (0, 1)] == pytest.approx([-1.0, 1.0])
    metrics = played.metrics
    assert metrics['credit/credited'] == 8
    assert metrics['credit/groups_without_signal'] == 0
    # Draft:| what| is| 3?| about ... in pieces; replies are `in| brie|f` and `a`.
    answers = [
        call
        for group in played.groups
        for trace in group.traces
        for call in trace.invocations
        if call.name == 'answer'
    ]
    assert {call.response_tokens for call in answers} == {2}
    tokens = sum(call.prompt_tokens + call.response_tokens for call in answers)
    assert metrics['model/answer/ppo/tokens'] == tokens
    assert metrics['model/answer/ppo/rollouts'] == 4
    # Four rollouts fit into one row, and a micro-batch has two of 128 tokens.
    assert metrics['model/answer/ppo/microbatches'] == 1
    assert metrics['model/answer/ppo/padding_waste'] == pytest.approx(
        1 - tokens / (2 * 128)
    )


def test_gae_takes_a_critic_that_says_zero():
    """With gamma and lambda 1, each token's advantage is the reward of its reply."""
    metrics = play(experiment(), says).metrics
    # Answers have two tokens each, of rewards 0.7 and 0.8.
    assert metrics['role/answer/advantage_mean'] == pytest.approx(0.75)
    assert metrics['role/answer/advantage_std'] == pytest.approx(0.05)


def test_groups_of_equal_samples_have_no_signal():
    whole = experiment(credit=credit.TrajectoryGrpo())
    metrics = play(whole, lambda role, segments, key: 'same').metrics
    assert metrics['credit/groups_without_signal'] == metrics['credit/groups'] == 2


def test_a_reply_is_cut_at_its_limit_in_tokens():
    whole = experiment(roles={'answer': {'max_tokens': 3}})
    said = 'abcd efgh ijkl mnop'
    played = play(whole, lambda role, segments, key: said)
    for group in played.groups:
        for trace in group.traces:
            draft, answer = (c for c in trace.invocations if c.kind == 'role')
            # The draft has 4 pieces and would need a fifth token to stop.
            assert (draft.text, draft.finish_reason) == (said, 'length')
            assert (answer.text, answer.finish_reason) == ('abcd efgh ijkl', 'length')


def test_stop_strings_of_single_roles_end_their_replies():
    whole = experiment(roles={'answer': {'stop': ('.',)}})
    played = play(whole, lambda role, segments, key: 'a. b')
    calls = [c for c in played.groups[0].traces[0].invocations if c.kind == 'role']
    assert [(c.text, c.response_tokens) for c in calls] == [('a. b', 4), ('a.', 2)]


def test_frozen_roles_and_endpoints_leave_no_batch():
    whole = experiment(frozen=('draft',))
    metrics = play(whole, says).metrics
    assert metrics['credit/credited'] == 4
    assert 'model/draft/ppo/tokens' not in metrics
    endpoint = specs.EndpointSpec(url='http://nowhere/v1', model='m')
    whole = experiment(
        endpoints={'draft': endpoint}, models={'answer': whole.models['answer']}
    )
    played = play(whole, says, endpoints={'draft': ScriptedPlayer(says)})
    assert played.metrics['role/draft/calls'] == 4
    assert {credit.role for credit in played.credits} == {'answer'}


def test_a_prompt_that_does_not_fit_is_refused():
    whole = experiment(roles={'answer': {'prompt_tokens': 9}})
    with pytest.raises(RequestRefused, match="'answer' refused .* its limit is 9"):
        play(whole, says)


def test_a_reply_that_a_script_lacks_is_named():
    def script(role, segments, key):
        raise specs.SpecError(f'no reply for role {role!r}')

    with pytest.raises(specs.SpecError, match="no reply for role 'draft'"):
        play(experiment(), script)


def render(found):
    return f'found {found}'


def searching():
    """One role that may call a tool before it answers."""
    output = tool_formats.WithTools(
        answer=formats.Tag(name='a'),
        calls=(
            tool_formats.CallTag(
                name='s', tool='look_up', argument='question', render=render
            ),
        ),
    )
    role = dataclasses.replace(
        small_experiment.role('answer', 'Q: {question}'),
        format=output,
        sampling=specs.Sampling(max_tokens=12),
        tools=('look_up',),
        max_tool_calls=1,
    )
    node = specs.RoleNode(
        name='answer',
        role='answer',
        reads=('question',),
        writes=('answer',),
        update=small_experiment.keep_answer,
    )
    flow = specs.WorkflowSpec(
        name='searching',
        roles=(role,),
        inputs=('question',),
        answer='answer',
        graph=specs.chain(node),
    )
    parts = {'answer': (specs.Outcome(metric=small_experiment.value_of_answer),)}
    return experiment(
        workflow=flow,
        reward=specs.RewardSpec(parts=parts, score=small_experiment.value_of_answer),
        models={'answer': small_experiment.MODEL},
    )


def test_a_call_that_goes_on_after_a_tool_is_one_rollout():
    script = lambda role, segments, key: '<s>x</s>' if key.call == 0 else '<a>b</a>'
    played = play(searching(), script, queries=1, samples=1)
    first, tool, last = played.groups[0].traces[0].invocations
    assert (first.status, tool.value, last.value) == ('continued', 'about x', 'b')
    assert played.metrics['model/answer/ppo/rollouts'] == 1
    # All that the last call read, its result and the earlier reply included.
    assert last.prompt_tokens > first.prompt_tokens + first.response_tokens
    tokens = last.prompt_tokens + last.response_tokens
    assert played.metrics['model/answer/ppo/tokens'] == tokens


def test_an_endpoint_that_fails_ends_the_run():
    class Down:
        async def reply(self, request):
            raise protocol.ServiceFailure('status 500')

    async def run():
        whole = experiment()
        tokenizers = dict.fromkeys(whole.models, StandInTokenizer())
        query = Query(id='1', dataset='d', fields={'question': '?'}, gold='')
        await dry_run.play(
            whole,
            dry.DryRuntime(whole, Down(), tokenizers),
            [('1@0', query)],
            samples=1,
            tools=whole.tools,
            endpoints={},
        )

    with pytest.raises(RequestRefused, match='status 500'):
        asyncio.run(asyncio.wait_for(run(), 30))


def test_a_tokenizer_that_is_not_here_is_replaced_and_named(tmp_path):
    missing = dataclasses.replace(small_experiment.MODEL, tokenizer='no/where')
    found, lines = dry.tokenizers_of({'a': missing, 'b': missing})
    assert found['a'] is found['b'] and isinstance(found['a'], StandInTokenizer)
    assert lines == ["tokens in pieces of 4 letters: no tokenizer 'no/where' here"]
    empty = dataclasses.replace(small_experiment.MODEL, tokenizer=str(tmp_path))
    with pytest.raises(specs.SpecError, match='holds no tokenizer.json'):
        dry.tokenizers_of({'a': empty})
