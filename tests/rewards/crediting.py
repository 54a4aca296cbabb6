"""Rules, rewards and ways to run them, for the tests of this folder."""

from made_traces import MAPPING, METRIC

from unimas_jax.protocol import Score
from unimas_jax.rewards import accounting, presets
from unimas_jax.rewards.credit import AgentGrpo, Gae, Rloo, TrajectoryGrpo, TurnGrpo
from unimas_jax.rewards.fork_credit import AnchorGrpo, Counterfactual
from unimas_jax.rewards.role_credit import Gdpo, MainSubGrpo, RoleGrpo
from unimas_jax.rewards.shaped_credit import DiscountedReturns, HistoryShaping
from unimas_jax.rewards.turn_credit import AggregatedGrpo, TurnReturns
from unimas_jax.rewards.value_credit import GaeAcrossCalls, TurnActorCritic
from unimas_jax.specs import Marginal, Outcome, RewardSpec

SHARED = presets.shared_outcome(['planner', 'coder'], METRIC)
MARGINAL = RewardSpec(
    parts={r: (Marginal(metric=METRIC),) for r in ('planner', 'coder')}, score=METRIC
)
LAST = RewardSpec(
    parts={r: (Outcome(metric=METRIC, share='last'),) for r in ('planner', 'coder')},
    score=METRIC,
)

REWARD_RULES = [
    Gae(),
    GaeAcrossCalls(),
    GaeAcrossCalls(gae_lambda=0.0, within_role=True),
    TurnActorCritic(),
    HistoryShaping(final_weight=0.5),
    DiscountedReturns(),
]
"""Rules without a comparison of samples."""

GROUP_RULES = [
    TrajectoryGrpo(),
    TrajectoryGrpo(trajectory_reward='score', scale=False),
    TrajectoryGrpo(trajectory_reward='sum', unbiased=True),
    TrajectoryGrpo(trajectory_reward='last'),
    Rloo(),
    AgentGrpo(),
    AgentGrpo(mean_over='trajectories'),
    AgentGrpo(std_over='trajectories'),
    AgentGrpo(mean_over='all_roles', std_over='all_roles'),
    TurnGrpo(),
    TurnGrpo(same_context=True),
    RoleGrpo(),
    RoleGrpo(estimators={'coder': 'rloo'}),
    MainSubGrpo(main='planner', sub_calls=2),
    Gdpo(),
    TurnReturns(),
    TurnReturns(baseline='best', discount=0.5),
    AggregatedGrpo(),
    AggregatedGrpo(aggregate='hop_discount'),
    HistoryShaping(compare='turn'),
    DiscountedReturns(compare='turn'),
    Counterfactual(),
    Counterfactual(baseline='assisted'),
]
"""Rules in which equal samples earn nothing."""

RULES = [*REWARD_RULES, *GROUP_RULES, AnchorGrpo()]


def run(rule, *groups, reward=SHARED, scores=None):
    """Credit groups and check the result; without scores, every value is 0.25."""
    if scores is None:
        calls = [c for group in groups for t in group.traces for c in t.invocations]
        scores = valued(calls, [0.25] * len(calls))
    credits = rule(groups, scores, reward=reward, mapping=MAPPING)
    accounting.check_credits(groups, credits, MAPPING)
    return credits


def valued(calls, values):
    """Return scores with these values."""
    return {
        c.key: Score(
            key=c.key,
            tokens=4,
            value=value,
            old_log_prob=0.0,
            reference_log_prob=None,
        )
        for c, value in zip(calls, values, strict=True)
    }


def advantages(credits, role, turn=None):
    """Return {sample: advantages of a role in order}."""
    found = {}
    for c in credits:
        if c.role == role and c.status == 'credited' and turn in (None, c.key.turn):
            found.setdefault(c.key.sample, []).append(c.advantage)
    return found


def by_place(credits, what='advantage'):
    """Return {(role, sample, turn): number}."""
    return {
        (c.role, c.key.sample, c.key.turn): getattr(c, what)
        for c in credits
        if c.status == 'credited'
    }
