"""Samples per query and samples per node, from the specification to the credits."""

import asyncio
import collections
import dataclasses

import pytest
import scripted_backend
import small_experiment

from unimas_jax import specs
from unimas_jax.controller import loop
from unimas_jax.metrics import traces
from unimas_jax.metrics.run_folder import RunFolder
from unimas_jax.rewards.credit import TrajectoryGrpo, TurnGrpo
from unimas_jax.rewards.fork_credit import Counterfactual

MODELS = {'draft': 'left', 'answer': 'right'}


def digit_of_draft(state):
    """Rank drafts by the digit that they are, in the scripted backend."""
    return sum(map(ord, state['draft']))


def forking(*, keep=None, **changes):
    """Two samples of each of four queries; three drafts in each sample."""
    graph = small_experiment.WORKFLOW.graph
    nodes = tuple(
        dataclasses.replace(node, samples=3, keep=keep)
        if node.name == 'draft'
        else node
        for node in graph.nodes
    )
    workflow = dataclasses.replace(
        small_experiment.WORKFLOW, graph=dataclasses.replace(graph, nodes=nodes)
    )
    fields = dict(workflow=workflow, num_steps=1, samples_per_query=2)
    return small_experiment.experiment(**(fields | changes))


def train(folder, experiment):
    """Train one step; return its traces with credits, its metrics and the backend."""
    run_folder = RunFolder(folder)
    run_folder.prepare()
    backend = scripted_backend.ScriptedBackend(MODELS, shuffle=1)
    options = loop.RunOptions(config='')
    asyncio.run(loop.train(experiment, backend, run_folder, options))
    stored = list(traces.read(run_folder.trace_path(1)))
    return stored, run_folder.read_metrics()[1], backend


def test_every_fork_of_every_sample_is_credited_and_trained_on(tmp_path):
    experiment = forking(credit=Counterfactual())
    stored, metrics, _ = train(tmp_path, experiment)
    assert len(stored) == 8
    for trace, credits in stored:
        # Three drafts, and an answer to each.
        assert [leaf.fork for leaf in trace.leaves] == [(0,), (1,), (2,)]
        roles = collections.Counter(c.role for c in credits)
        assert roles == {'draft': 3, 'answer': 3}
    texts = [
        {c.text for c in trace.invocations if c.name == 'draft'} for trace, _ in stored
    ]
    assert sum(map(len, texts)) > 16, 'forks draw different random numbers'
    assert metrics['credit/credited'] == 48.0
    # Drafts of a sample read one and the same look-up: a group for each sample.
    groups = collections.Counter(
        c.group for _, credits in stored for c in credits if c.role == 'draft'
    )
    assert len(groups) == 8 and set(groups.values()) == {3}
    # An answer has no siblings, as each read another draft.
    answers = [c for _, credits in stored for c in credits if c.role == 'answer']
    assert len({c.group for c in answers}) == 24
    assert {c.advantage for c in answers} == {0.0}


def test_siblings_are_compared_with_each_other_by_hand(tmp_path):
    stored, _, _ = train(tmp_path, forking(credit=Counterfactual()))
    for trace, credits in stored:
        rewards = [
            small_experiment.value_of_answer(trace, leaf, None) for leaf in trace.leaves
        ]
        drafts = [c.advantage for c in credits if c.role == 'draft']
        assert drafts == pytest.approx(
            [r - (sum(rewards) - r) / 2 for r in rewards], abs=1e-12
        )


def test_only_the_best_draft_is_answered(tmp_path):
    keep = specs.Keep(by=digit_of_draft)
    rule = TurnGrpo(same_context=True)
    stored, metrics, _ = train(tmp_path, forking(keep=keep, credit=rule))
    for trace, credits in stored:
        drafts = [c for c in trace.invocations if c.name == 'draft']
        best = max(drafts, key=lambda c: int(c.text))
        answered = [c.key.fork for c in trace.invocations if c.name == 'answer']
        assert answered == [best.key.fork]
        assert [leaf.fork for leaf in trace.leaves if leaf.kept] == answered
        earned = {c.key.fork: c.reward for c in credits if c.role == 'draft'}
        kept = next(leaf for leaf in trace.leaves if leaf.kept)
        score = small_experiment.value_of_answer(trace, kept, None)
        # A draft that was not answered leaves a workflow without an answer: 0.
        assert earned == {c.key.fork: score if c is best else 0.0 for c in drafts}
    assert metrics['credit/credited'] == 8 * 4
    # The score of a sample is that of the path that was kept.
    scores = [
        small_experiment.value_of_answer(t, x, None)
        for t, _ in stored
        for x in t.leaves
        if x.kept
    ]
    assert metrics['workflow/small/score'] == pytest.approx(sum(scores) / 8)


def test_samples_of_a_query_are_one_group(tmp_path):
    experiment = small_experiment.experiment(
        num_steps=1, samples_per_query=5, credit=TrajectoryGrpo()
    )
    stored, metrics, _ = train(tmp_path, experiment)
    assert [trace.sample for trace, _ in stored] == [0, 1, 2, 3, 4] * 4
    assert metrics['credit/groups'] == 4.0
    assert metrics['credit/group_samples'] == 5.0
