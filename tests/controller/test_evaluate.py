"""Scores on dev and test: worked by hand, failures included."""

import asyncio
import itertools

import numpy as np
import pytest
import scripted_backend
import small_experiment

from unimas_jax import specs
from unimas_jax.controller import evaluate
from unimas_jax.controller.episodes import Episodes
from unimas_jax.controller.router import Router
from unimas_jax.metrics import names

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


def half_credit(trace, leaf, turn):
    return is_right(trace, leaf, turn) / 2


def always_one(trace, leaf, turn):
    return 1.0


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
    broken = small_experiment.LookUp(broken=('dev: what is 1?',))
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


def test_pass_at_k_by_hand():
    """Of 4 samples one is solved: 3 of the 6 pairs hold it."""
    assert evaluate.pass_at_k(1, 4, 1) == pytest.approx(1 / 4)
    assert evaluate.pass_at_k(1, 4, 2) == pytest.approx(3 / 6)
    assert evaluate.pass_at_k(1, 4, 4) == 1
    # 2 of 5 solved: 3 of the 10 pairs hold none, 1 of the 10 triples.
    assert evaluate.pass_at_k(2, 5, 2) == pytest.approx(7 / 10)
    assert evaluate.pass_at_k(2, 5, 3) == pytest.approx(9 / 10)
    assert evaluate.pass_at_k(0, 5, 5) == 0 and evaluate.pass_at_k(5, 5, 1) == 1


@pytest.mark.parametrize(('samples', 'solved', 'k'), [(6, 2, 3), (7, 4, 2), (5, 1, 4)])
def test_pass_at_k_counts_subsets(samples, solved, k):
    subsets = list(itertools.combinations([i < solved for i in range(samples)], k))
    expected = sum(map(any, subsets)) / len(subsets)
    assert evaluate.pass_at_k(solved, samples, k) == pytest.approx(expected)


def test_pass_at_k_needs_the_full_score_and_avg_at_k_is_the_score():
    """Queries 0, 1 and 2 are solved in one sample of four, 3 and 4 in none."""

    def right_once(request, weight):
        return number_asked(request, weight) if request.key.sample == 1 else '9'

    spec = specs.EvaluationSpec(
        samples=4, temperature=1.0, metrics={'half': half_credit, 'em': is_right}
    )
    result = run(small_experiment.experiment(evaluation=spec), right_once).metrics
    assert result['eval/dev/score'] == pytest.approx(3 / 20)
    assert result['eval/dev/pass@1'] == pytest.approx(3 / 20)
    assert result['eval/dev/pass@2'] == pytest.approx(3 / 5 * 1 / 2)
    assert result['eval/dev/pass@4'] == pytest.approx(3 / 5)
    assert result['eval/dev/metric/em'] == pytest.approx(3 / 20)
    assert result['eval/dev/metric/half'] == pytest.approx(3 / 20 / 2)


@pytest.mark.parametrize(
    ('samples', 'ks'), [(1, [1]), (2, [1, 2]), (5, [1, 2, 4, 5]), (8, [1, 2, 4, 8])]
)
def test_pass_at_k_is_reported_for_powers_of_two_and_all(samples, ks):
    assert evaluate.budgets(samples) == ks


def test_several_greedy_samples_are_refused():
    with pytest.raises(specs.SpecError, match='temperature is 0.0: .*all the same'):
        specs.EvaluationSpec(samples=2)


def test_further_metrics_count_failures_as_wrong():
    broken = small_experiment.LookUp(broken=('dev: what is 1?',))
    spec = specs.EvaluationSpec(metrics={'one': always_one})
    experiment = small_experiment.experiment(tools={'look_up': broken}, evaluation=spec)
    result = run(experiment, number_asked).metrics
    assert result['eval/dev/metric/one'] == pytest.approx(4 / 5)


def test_cost_of_a_sample():
    """Question 1 fails at its tool, so two of ten role calls are not made."""
    broken = small_experiment.LookUp(broken=('dev: what is 1?',))
    result = run(
        small_experiment.experiment(tools={'look_up': broken}), number_asked
    ).metrics
    assert result['eval/dev/turns'] == 1
    assert result['eval/dev/tool_calls/look_up'] == 1
    assert result['eval/dev/role_calls'] == pytest.approx(8 / 5)
    assert result['eval/dev/role_calls/draft'] == pytest.approx(4 / 5)
    # The scripted models say one token for each reply, and read none.
    assert result['eval/dev/response_tokens'] == pytest.approx(8 / 5)
    assert result['eval/dev/response_tokens/answer'] == pytest.approx(4 / 5)
    assert result['eval/dev/prompt_tokens'] == 0


def test_every_metric_of_an_evaluation_is_explained():
    result = run(small_experiment.experiment(), number_asked)
    assert all(names.lookup(name) for name in result.metrics)


def test_legality_is_reported_by_role():
    def empty_drafts_of_question_one(request, weight):
        asks_one = request.role == 'draft' and ' 1?' in request.segments[0].text
        return ' ' if asks_one else number_asked(request, weight)

    result = run(small_experiment.experiment(), empty_drafts_of_question_one)
    assert result.metrics['eval/dev/legal/draft'] == pytest.approx(4 / 5)
    assert result.metrics['eval/dev/legal/answer'] == 1.0
    # Two of five are right; the illegal one is not.
    assert result.metrics['eval/dev/score'] == pytest.approx(2 / 5)
    assert result.metrics['eval/dev/score_legal'] == pytest.approx(2 / 4)


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
