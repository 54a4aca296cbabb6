"""Experiments around small workflows, and the faults that are found in them."""

import flows

from unimas_jax import protocol, specs
from unimas_jax.workflows import check


def metric(trace, leaf, turn):
    return 0.0


class SampleTool(flows.CountingTool):
    """A tool that can say what its results look like."""

    def sample(self):
        return (protocol.Passage(title='A title', text='Some text.'),)


def model(**changes):
    fields = {
        'weights': 'random',
        'architecture': 'tiny',
        'tokenizer': 'folder',
        'context_tokens': 128,
        'optimizer': specs.OptimizerSpec(learning_rate=1e-3),
    }
    return specs.ModelSpec(**(fields | changes))


def experiment(flow, **changes):
    parts = {role.name: (specs.Outcome(metric=metric),) for role in flow.roles}
    fields = {
        'workflow': flow,
        'data': None,
        'reward': specs.RewardSpec(parts=parts, score=metric),
        'credit': None,
        'num_steps': 1,
        'queries_per_step': 1,
        'model': model(),
        'tools': {'search': SampleTool(), 'retriever': SampleTool()},
    }
    return specs.Experiment(**(fields | changes))


def problems_of(flow, **changes):
    return check.check(experiment(flow, **changes), flows.QUERY)


def one_problem(flow, **changes):
    (problem,) = problems_of(flow, **changes)
    assert '\n' not in problem
    return problem
