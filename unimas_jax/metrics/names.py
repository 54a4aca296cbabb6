"""Every metric: title, unit, direction and meaning, in the order of a report.

A name is a path. Parts in angle brackets stand for a role, a model, a split or the
like: `role/<role>/reward` covers `role/answer/reward`. Names that the table does not
know are welcome; reports list them under `Other`.
"""

import dataclasses
import functools
import re
import statistics
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, kw_only=True)
class Metric:
    """One line of the table.

    Attributes:
        pattern: Its name, with placeholders.
        group: Heading under which reports show it.
        title: Of its chart; empty where a chart would say little.
        unit: Of its values; empty for plain numbers, `share` for 0 to 1.
        better: `higher`, `lower`, or empty where neither is.
        text: What it means, in one line.
    """

    pattern: str
    group: str
    title: str = ''
    unit: str = ''
    better: str = ''
    text: str


SCORE = 'workflow/<workflow>/score'
REWARD = 'role/<role>/reward'
LEGAL = 'role/<role>/legal'
TOKENS_PER_SECOND = 'system/tokens_per_second'
PHASE = 'time/<phase>'
EVALUATION = 'eval/<split>/score'
EVALUATION_LOW = 'eval/<split>/score_low'
EVALUATION_HIGH = 'eval/<split>/score_high'

# Columns: pattern, title, unit, better, text. Groups in the order of a report.
_TABLE: dict[str, tuple[tuple[str, str, str, str, str], ...]] = {
    'Outcome': (
        (SCORE, 'Training score', '', 'higher', 'Mean outcome of training samples.'),
        (
            EVALUATION,
            'Evaluation score',
            '',
            'higher',
            'Mean outcome with its 95 % interval; failed queries count as wrong.',
        ),
        (EVALUATION_LOW, '', '', 'higher', 'Lower end of the 95 % interval.'),
        (EVALUATION_HIGH, '', '', 'higher', 'Upper end of the 95 % interval.'),
        ('eval/<split>/metric/<name>', '', '', 'higher', 'Another score, failed as 0.'),
        (
            'eval/<split>/pass@<k>',
            'Solved queries',
            'share',
            'higher',
            'Queries that k samples solve: one of them has the full score.',
        ),
        ('eval/<split>/step', '', 'steps', '', 'Training behind the checkpoint.'),
        ('eval/<split>/queries', '', 'queries', '', 'Queries that were evaluated.'),
        ('eval/<split>/failed', '', 'queries', 'lower', 'Queries failed by a service.'),
        ('eval/<split>/dataset/<dataset>', '', '', 'higher', 'Score on one data set.'),
        ('eval/<split>/legal/<role>', '', 'share', 'higher', 'Legal replies.'),
        (
            'eval/<split>/score_legal',
            '',
            '',
            'higher',
            'Mean outcome of samples whose replies are all legal: above the score by '
            'what format alone can still gain.',
        ),
        ('eval/<split>/turns', '', 'turns', '', 'Mean turns of a sample.'),
        ('eval/<split>/role_calls', '', 'calls', '', 'Of a sample, all roles.'),
        ('eval/<split>/role_calls/<role>', '', 'calls', '', 'Of a sample.'),
        ('eval/<split>/tool_calls/<tool>', '', 'calls', '', 'Of a sample.'),
        ('eval/<split>/prompt_tokens', '', 'tokens', '', 'Read in a sample.'),
        ('eval/<split>/prompt_tokens/<role>', '', 'tokens', '', 'The same, by role.'),
        ('eval/<split>/response_tokens', '', 'tokens', '', 'Written in a sample.'),
        ('eval/<split>/response_tokens/<role>', '', 'tokens', '', 'By role.'),
        ('workflow/<workflow>/turns', 'Turns', 'turns', '', 'Mean turns of a sample.'),
        ('workflow/<workflow>/samples', '', 'samples', '', 'Samples of the step.'),
        ('workflow/<workflow>/illegal', '', 'share', 'lower', 'Ended by bad format.'),
        ('workflow/<workflow>/failed', '', 'share', 'lower', 'Failed by a service.'),
    ),
    'Rewards': (
        (REWARD, 'Reward', '', 'higher', 'Mean reward of the calls of a role.'),
        (
            'role/<role>/reward/<part>',
            'Parts of the reward',
            '',
            'higher',
            'Mean of each part of the reward.',
        ),
        ('role/<role>/reward_std', '', '', '', 'Spread of the rewards.'),
        ('role/<role>/advantage_mean', '', '', '', 'Mean advantage by the rule.'),
        (
            'role/<role>/advantage_std',
            'Spread of advantages',
            '',
            '',
            'Standard deviation of the advantages that the rule gave.',
        ),
        ('credit/credited', '', 'calls', 'higher', 'Calls that are trained on.'),
        (
            'credit/masked',
            'Masked calls',
            'calls',
            'lower',
            'Calls kept out of loss and baselines.',
        ),
        ('credit/masked/<reason>', '', 'calls', 'lower', 'The same, by reason.'),
        ('credit/dropped', '', 'calls', 'lower', 'Calls whose tokens were discarded.'),
        ('credit/dropped/<reason>', '', 'calls', 'lower', 'The same, by reason.'),
        ('credit/groups', '', 'groups', '', 'Sets over which the rule compared.'),
        ('credit/group_samples', '', 'samples', '', 'Mean samples of such a set.'),
        ('credit/groups_of_one_sample', '', 'groups', 'lower', 'Nothing to compare.'),
        (
            'credit/groups_without_signal',
            'Groups without signal',
            'groups',
            'lower',
            'Groups in which every call got advantage 0.',
        ),
    ),
    'Replies': (
        (LEGAL, 'Legal replies', 'share', 'higher', 'Replies whose format is legal.'),
        (
            'role/<role>/truncated',
            'Truncated replies',
            'share',
            'lower',
            'Replies cut at their length limit.',
        ),
        (
            'role/<role>/response_tokens',
            'Reply length',
            'tokens',
            '',
            'Mean tokens of a reply.',
        ),
        (
            'role/<role>/prompt_tokens',
            'Prompt length',
            'tokens',
            '',
            'Mean tokens of a prompt.',
        ),
        ('role/<role>/cut_tokens', '', 'tokens', 'lower', 'Mean cut from a prompt.'),
        ('role/<role>/calls', '', 'calls', '', 'Calls of the step.'),
        ('role/<role>/illegal', '', 'share', 'lower', 'Replies of broken format.'),
        ('role/<role>/failed', '', 'share', 'lower', 'Calls failed by a service.'),
        ('role/<role>/log_prob', '', 'nats', '', 'Mean of the tokens of a reply.'),
        ('tool/<tool>/calls', '', 'calls', '', 'Calls of a tool.'),
        ('tool/<tool>/failed', '', 'share', 'lower', 'Calls that failed for good.'),
        ('tool/<tool>/attempts', '', '', 'lower', 'Mean tries of a call.'),
    ),
    'Learning': (
        ('model/<model>/ppo/loss', 'Policy loss', '', '', 'Loss of the policy.'),
        ('model/<model>/ppo/value_loss', 'Value loss', '', 'lower', 'Of the critic.'),
        (
            'model/<model>/ppo/explained_variance',
            'Explained variance',
            '',
            'higher',
            "Share of the returns' variance that the critic explains; 1 is perfect.",
        ),
        (
            'model/<model>/ppo/entropy',
            'Entropy',
            'nats',
            '',
            'Mean for each token of a model.',
        ),
        (
            'role/<role>/entropy',
            'Entropy by role',
            'nats',
            '',
            'Mean for each token of a role.',
        ),
        (
            'model/<model>/ppo/kl_old',
            'KL to the sampling policy',
            'nats',
            '',
            'How far an update moved, for each token.',
        ),
        (
            'model/<model>/ppo/kl_reference',
            'KL to the reference',
            'nats',
            '',
            'How far training has moved, for each token.',
        ),
        ('model/<model>/ppo/kl_beta', '', '', '', 'Weight of the KL term in force.'),
        (
            'model/<model>/ppo/clip_share',
            'Clipped tokens',
            'share',
            '',
            'Tokens whose ratio left the clip range.',
        ),
        ('model/<model>/ppo/dual_clip_share', '', 'share', '', 'At the dual clip.'),
        (
            'model/<model>/ppo/grad_norm',
            'Gradient norm',
            '',
            '',
            'Norm of the whole gradient, before it is clipped.',
        ),
        ('model/<model>/ppo/critic_grad_norm', '', '', '', 'The same, of the critic.'),
        ('model/<model>/ppo/learning_rate', '', '', '', 'Step size in force.'),
        (
            'role/<role>/loss_share',
            'Share of the loss',
            'share',
            '',
            "Share of a role in its model's loss.",
        ),
        (
            'role/<role>/mismatch',
            'Sampler against trainer',
            'nats',
            'lower',
            'Mean difference of their log-probabilities of a token.',
        ),
        ('role/<role>/mismatch_max', '', 'nats', 'lower', 'The largest difference.'),
        ('model/<model>/ppo/importance_weight', '', '', '', 'Mean weight for it.'),
        ('model/<model>/ppo/importance_truncated', '', 'share', '', 'At the cap.'),
        ('role/<role>/kl_old', '', 'nats', '', 'How far an update moved a role.'),
        ('role/<role>/clip_share', '', 'share', '', 'Clipped tokens of a role.'),
        ('model/<model>/ppo/tokens', '', 'tokens', '', 'Trained on, prompts included.'),
        ('model/<model>/ppo/rollouts', '', 'calls', '', 'Trained on.'),
        ('model/<model>/sft/loss_first', '', 'nats', '', 'Warm start: first.'),
        ('model/<model>/sft/loss', '', 'nats', 'lower', 'Warm start: last.'),
    ),
    'Speed': (
        (
            TOKENS_PER_SECOND,
            'Sampling speed',
            'tokens/s',
            'higher',
            'Sampled tokens over the time of the rollout phase.',
        ),
        (
            'system/<model>/train_tokens_per_second',
            'Training speed',
            'tokens/s',
            'higher',
            'Tokens of an update over its time.',
        ),
        (
            'system/<model>/row_occupancy',
            'Row occupancy',
            'share',
            'higher',
            'Rows that decode, of all rows.',
        ),
        (
            'system/<model>/prefix_hit_tokens',
            'Reused prompt tokens',
            'tokens',
            'higher',
            'Prompt tokens whose cache pages were reused.',
        ),
        (
            'model/<model>/ppo/padding_waste',
            'Padding',
            'share',
            'lower',
            'Padding in the training batch.',
        ),
        ('system/<model>/preempted', '', 'calls', 'lower', 'Begun again.'),
        ('system/<model>/peak_page_share', '', 'share', '', 'Of the cache.'),
        ('system/<model>/response_tokens', '', 'tokens', '', 'Sampled.'),
        ('system/<model>/compilations', '', '', 'lower', 'After the warm-up.'),
        ('system/wire_bytes_per_call', '', 'bytes', 'lower', 'Beyond the text.'),
        ('system/calls', '', 'calls', '', 'Role calls that were sent.'),
        ('system/calls_per_message', '', 'calls', 'higher', 'Calls sent together.'),
        ('system/failed', '', 'samples', 'lower', 'Samples failed by a service.'),
        ('system/restarts', '', '', 'lower', 'Times that lost workers were replaced.'),
    ),
    'Time': (
        (PHASE, 'Seconds by phase', 's', 'lower', 'Time of a step, by phase.'),
        ('time/<model>/<phase>', '', 's', 'lower', 'Time of a model, by phase.'),
    ),
}

METRICS = tuple(
    Metric(
        pattern=pattern, group=group, title=title, unit=unit, better=better, text=text
    )
    for group, rows in _TABLE.items()
    for pattern, title, unit, better, text in rows
)
GROUPS = tuple(_TABLE)
OTHER = 'Other'


def lookup(name: str) -> Metric | None:
    """Return the line that covers a name, if any."""
    for metric in METRICS:
        if _regex(metric.pattern).fullmatch(name):
            return metric
    return None


def select(metrics: Mapping[str, float], pattern: str) -> dict[str, float]:
    """Return the metrics that a pattern covers, by what its placeholders stand for.

    Args:
        metrics: Numbers by name.
        pattern: Like `role/<role>/reward/<part>`, which gives labels `answer f1`; a
            pattern without placeholders gives the label ''.
    """
    matches = ((_regex(pattern).fullmatch(name), v) for name, v in metrics.items())
    return {' '.join(match.groups()): value for match, value in matches if match}


def series(
    steps: Mapping[int, Mapping[str, float]], pattern: str
) -> dict[str, dict[int, float]]:
    """Return, by label, the values of each step that has one.

    Args:
        steps: Metrics by step, as `RunFolder.read_metrics` returns.
        pattern: See `select`.
    """
    curves: dict[str, dict[int, float]] = {}
    for step, metrics in steps.items():
        for label, value in select(metrics, pattern).items():
            curves.setdefault(label, {})[step] = value
    return curves


def mean(metrics: Mapping[str, float], pattern: str) -> float | None:
    """Return the mean over the metrics that a pattern covers; None without any."""
    values = select(metrics, pattern).values()
    return statistics.fmean(values) if values else None


@functools.cache
def _regex(pattern: str) -> re.Pattern[str]:
    pieces = re.split(r'<\w+>', pattern)
    return re.compile('([^/]+)'.join(re.escape(piece) for piece in pieces))
