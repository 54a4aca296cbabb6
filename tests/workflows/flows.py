"""Small workflows, a scripted tool and a runner for the tests of this folder."""

import asyncio
import dataclasses
import random

from unimas_jax import specs
from unimas_jax.trace import Invocation, Key, Query, Trace
from unimas_jax.workflows import engine, formats, scripted

QUERY = Query(id='7', dataset='made_up', fields={'question': 'Who?'}, gold='Ada')


class CountingTool:
    """Calls a function; counts how often it is opened, called and closed."""

    def __init__(self, function=lambda **arguments: tuple(arguments.values())):
        self.function = function
        self.opened = 0
        self.closed = 0
        self.calls = []

    async def start(self, data_dir):
        del data_dir

    async def open(self, query):
        del query
        self.opened += 1
        return self

    async def call(self, **arguments):
        self.calls.append(arguments)
        result = self.function(**arguments)
        return await result if asyncio.iscoroutine(result) else result

    async def close(self):
        self.closed += 1

    async def stop(self):
        pass


def role(name, *, text='{question}', output=None, max_tokens=16, **options):
    return specs.RoleSpec(
        name=name,
        prompt=(specs.Section(name='all', text=text),),
        format=output or formats.Tag(name='a'),
        sampling=specs.Sampling(max_tokens=max_tokens),
        prompt_tokens=64,
        **options,
    )


def keep_answer(state, value):
    return {'answer': value}


def no_answer(state, error):
    return {'answer': f'none: {error}'}


def role_node(name, **options):
    defaults = {
        'role': name,
        'reads': ('question',),
        'writes': ('answer',),
        'update': keep_answer,
    }
    return specs.RoleNode(name=name, **(defaults | options))


def workflow(*nodes, roles=None, edges=(), **options):
    """A workflow of these nodes, by default one after the other."""
    edges = edges or tuple(
        specs.Edge(source=a.name, target=b.name)
        for a, b in zip(nodes, nodes[1:], strict=False)
    )
    names = dict.fromkeys(n.role for n in nodes if isinstance(n, specs.RoleNode))
    defaults = {
        'name': 'flow',
        'roles': roles or tuple(role(name) for name in names),
        'inputs': ('question',),
        'answer': 'answer',
        'graph': specs.Graph(start=nodes[0].name, nodes=nodes, edges=edges),
    }
    return specs.WorkflowSpec(**(defaults | options))


def key(node, *, turn=0, branch=(), fork=(), call=0, sample=0):
    return Key('7@0', sample, fork, node, turn, branch, call)


async def no_sleep(seconds):
    del seconds


async def run(
    flow,
    script,
    *,
    tools=None,
    query=QUERY,
    sleep=no_sleep,
    ask=None,
    model_of=None,
):
    """Run a workflow with replies from `script(role, key)`, or a text for all."""
    reply = script if callable(script) else lambda role, key: script
    return await engine.run(
        flow,
        query,
        query_key='7@0',
        sample=0,
        ask=ask or scripted.scripted_ask(lambda role, _, key: reply(role, key)),
        tools=tools or {},
        model_of=model_of or {'first': 'shared'},
        clock=lambda: 0.0,
        sleep=sleep,
    )


def trace_of(flow, script, **options) -> Trace:
    return asyncio.run(run(flow, script, **options))


def shuffled(ask, seed):
    """`ask` with replies that arrive in an order drawn from `seed`."""
    order = random.Random(seed)

    async def late(*arguments):
        for _ in range(order.randrange(20)):
            await asyncio.sleep(0)
        return await ask(*arguments)

    return late


def without_counts(invocation: Invocation) -> Invocation:
    """An invocation without what a scripted reply says about tokens."""
    return dataclasses.replace(
        invocation, prompt_tokens=0, response_tokens=0, finish_reason=''
    )
