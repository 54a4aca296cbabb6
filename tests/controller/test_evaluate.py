"""Scores on dev and test: worked by hand, failures included."""

import asyncio

import numpy as np
import pytest
import scripted_backend
import small_experiment

from unimas_jax import specs
from unimas_jax.controller import evaluate
from unimas_jax.controller.episodes import Episodes
from unimas_jax.controller.router import Router

MODELS = {'draft': 'g', 'answer': 'g'}


def run(experiment, reply):
    """Evaluate on dev, five queries of gold 0 to 4; return the metrics."""
    backend = scripted_backend.ScriptedBackend(MODELS, reply=reply)

    async def run_all():
        await backend.start()
        async with Router(backend, experiment.mapping, endpoints={}) as router:
            return await evaluate.evaluate(
                Episodes(experiment, router, experiment.tools),
                evaluate.choose(experiment.data.load('dev', ''), 0, seed=0),
                split='dev',
                spec=experiment.evaluation,
                score=is_right,
                step=3,
                seed=0,
            )

    return asyncio.run(run_all())


def is_right(trace, leaf, turn):
    return float(leaf.state.get('answer') == trace.query.gold)


def number_asked(request, weight):
    """Answer questions 0, 1 and 2 with their number, and others with 9."""
    number = next(c for c in request.segments[0].text if c.isdigit())
    return number if number in '012' else '9'


def test_score_is_the_mean_over_samples():
    result = run(small_experiment.experiment(), number_asked)
    assert result.metrics['eval/dev/score'] == pytest.approx(3 / 5)
    assert result.metrics['eval/dev/queries'] == 5
    # Even questions are 0, 2 and 4; odd ones 1 and 3.
    assert result.metrics['eval/dev/dataset/even'] == pytest.approx(2 / 3)
    assert result.metrics['eval/dev/dataset/odd'] == pytest.approx(1 / 2)
    assert [g.query_key for g in result.groups] == [f'dev{i}' for i in range(5)]


def test_a_failed_query_counts_as_wrong():
    """Leaving query 1 out would give 2/4 instead of 2/5."""
    broken = small_experiment.LookUp(broken=('what is 1?',))
    result = run(small_experiment.experiment(tools={'look_up': broken}), number_asked)
    assert result.metrics['eval/dev/score'] == pytest.approx(2 / 5)
    assert result.metrics['eval/dev/failed'] == 1


def test_every_sample_counts_and_is_sampled_as_the_evaluation_says():
    seen = []

    def right_in_the_first_sample(request, weight):
        seen.append(request)
        return number_asked(request, weight) if request.key.sample == 0 else '9'

    spec = specs.EvaluationSpec(samples=4, temperature=0.3)
    experiment = small_experiment.experiment(evaluation=spec)
    result = run(experiment, right_in_the_first_sample)
    assert result.metrics['eval/dev/score'] == pytest.approx(3 / 20)
    assert {request.sampling.temperature for request in seen} == {0.3}
    assert {request.purpose for request in seen} == {'evaluate'}


def test_legality_is_reported_by_role():
    def empty_drafts_of_question_one(request, weight):
        asks_one = request.role == 'draft' and ' 1?' in request.segments[0].text
        return ' ' if asks_one else number_asked(request, weight)

    result = run(small_experiment.experiment(), empty_drafts_of_question_one)
    assert result.metrics['eval/dev/legal/draft'] == pytest.approx(4 / 5)
    assert result.metrics['eval/dev/legal/answer'] == 1.0


def test_interval_matches_the_normal_one_of_a_large_sample():
    """1,000 coin flips: 0.5 +- 1.96 * 0.5 / sqrt(1000) = 0.469 to 0.531."""
    values = np.arange(1000) % 2
    low, high = evaluate.interval(values.astype(float), seed=3)
    assert (low, high) == (
        pytest.approx(0.469, abs=4e-3),
        pytest.approx(0.531, abs=4e-3),
    )
    assert (low, high) == evaluate.interval(values.astype(float), seed=3)


def test_interval_of_equal_values_is_a_point():
    assert evaluate.interval(np.full(7, 0.25), seed=0) == (0.25, 0.25)


def test_a_subset_is_drawn_from_all_rows_and_stays_the_same():
    rows = small_experiment.Questions(size=100).load('train', '')
    chosen = evaluate.choose(rows, 10, seed=1)
    assert chosen == evaluate.choose(rows, 10, seed=1)
    numbers = [int(key.removeprefix('train')) for key, _ in chosen]
    assert numbers == sorted(set(numbers)) and max(numbers) > 30
    assert len(evaluate.choose(rows, 0, seed=1)) == 100
