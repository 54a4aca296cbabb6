"""A small run folder with everything a report shows, for the tests of this folder."""

import math

from unimas_jax.metrics import traces
from unimas_jax.metrics.run_folder import RunFolder
from unimas_jax.protocol import Passage
from unimas_jax.trace import Credit, Invocation, Key, Leaf, Query, Trace, TraceGroup

NASTY = '</pre><script>alert("1")</script> & \x1b]0;owned\x07 \ud800 end'


def make_run(path, *, steps=8):
    """Write a run of `steps` training steps, evaluated at its ends."""
    folder = RunFolder(path)
    folder.prepare()
    folder.write_config('# one <model> & two roles\n')
    folder.write_versions()
    folder.append_metrics(0, _evaluation(0.1))
    for step in range(1, steps + 1):
        metrics = {
            'workflow/qa/score': step / 10,
            'role/decompose/reward': step / 10 - 0.1,
            'role/answer/reward': step / 10,
            'role/answer/reward/token_f1': step / 10 + 0.1,
            'role/answer/reward/format': -0.1,
            'role/answer/legal': 0.9,
            'role/answer/truncated': 0.02,
            'role/answer/response_tokens': 30.0 + step,
            'model/shared/ppo/entropy': 2.0 / step,
            'model/shared/ppo/kl_old': 1e-5 * step,
            'model/shared/ppo/clip_share': 0.05,
            'model/shared/ppo/grad_norm': math.nan if step == 3 else 1.0 * step,
            'system/tokens_per_second': 1500.0 + step,
            'time/rollout': 2.5,
            'time/update': 1.5,
            'time/step': 4.0,
            'my/<own>': 1.0,
        }
        folder.append_metrics(
            step, metrics | (_evaluation(0.6) if step == steps else {})
        )
    found = [make_trace(f'q{n}', reward) for n, reward in enumerate([0.5, -1.0, 1.0])]
    groups = [TraceGroup(query_key=t.query_key, traces=(t,)) for t, _ in found]
    credits = [credit for _, earned in found for credit in earned]
    traces.write(folder.trace_path(steps), groups, credits)
    for step in (0, steps):
        traces.write(folder.trace_path(step, 'dev'), groups[:1])
    return folder


def make_trace(query, reward):
    """Return a trace of two turns and its credits."""
    key = f'{query}@0'
    plan = Key(key, 0, (), 'decompose', 0, (), 0)
    search = Key(key, 0, (), 'retrieve', 0, (1,), 0)
    answer = Key(key, 0, (), 'answer', 1, (), 0)
    invocations = (
        Invocation(
            key=plan,
            kind='role',
            name='decompose',
            model='shared',
            status='ok',
            text=NASTY,
            prompt_tokens=212,
            response_tokens=35,
            seconds=0.8,
        ),
        Invocation(
            key=search,
            kind='tool',
            name='retrieve',
            status='ok',
            parents=(plan,),
            value=tuple(Passage(title=f'T{n}', text='word ' * 400) for n in range(4)),
            text='(Passage(title=',
            attempts=2,
        ),
        Invocation(
            key=answer,
            kind='role',
            name='answer',
            model='shared',
            status='illegal',
            error='no <final_answer>',
            parents=(plan, search),
            text='\n'.join(f'line {n}' for n in range(1, 21)),
            cuts=(('passages', 12),),
        ),
    )
    trace = Trace(
        query=Query(id=query, dataset='d', fields={'question': 'Who?'}, gold=('Ada',)),
        query_key=key,
        sample=0,
        initial={},
        invocations=invocations,
        leaves=(Leaf(fork=(), state={}, status='finished', turns=2),),
        seconds=1.25,
    )
    credits = (
        Credit(
            key=plan,
            role='decompose',
            model='shared',
            reward=reward,
            parts={'token_f1': reward, 'format': 0.0},
            advantage=reward - 0.25,
        ),
        Credit(
            key=answer, role='answer', model='shared', status='masked', reason='tool'
        ),
    )
    return trace, credits


def _evaluation(score):
    return {
        'eval/dev/score': score,
        'eval/dev/score_low': score - 0.05,
        'eval/dev/score_high': score + 0.07,
        'eval/dev/queries': 50.0,
        'eval/dev/failed': 1.0,
        'eval/dev/legal/answer': 0.5 + score / 2,
    }
