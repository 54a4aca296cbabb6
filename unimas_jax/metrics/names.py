"""Every metric: unit, direction and meaning, in the order of a report.

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
        unit: Of its values; empty for plain numbers, `share` for 0 to 1.
        better: `higher`, `lower`, or empty where neither is.
        text: What it means, in one line.
    """

    pattern: str
    group: str
    unit: str = ''
    better: str = ''
    text: str


SCORE = 'workflow/<workflow>/score'
REWARD = 'role/<role>/reward'
LEGAL = 'role/<role>/legal'
TOKENS_PER_SECOND = 'system/tokens_per_second'
PHASE = 'time/<phase>'
EVALUATION = 'eval/<split>/score'

# Columns: pattern, unit, better, text. Groups in the order of a report.
_TABLE: dict[str, tuple[tuple[str, str, str, str], ...]] = {
    'Outcome': (
        (SCORE, '', 'higher', 'Mean outcome of the training samples of the step.'),
        ('workflow/<workflow>/turns', 'turns', '', 'Mean turns of a sample.'),
        ('workflow/<workflow>/seconds', 's', 'lower', 'Mean duration of a sample.'),
        (EVALUATION, '', 'higher', 'Mean outcome; failed queries count as wrong.'),
        ('eval/<split>/score_low', '', 'higher', 'Lower end of the 95 % interval.'),
        ('eval/<split>/score_high', '', 'higher', 'Upper end of the 95 % interval.'),
        ('eval/<split>/queries', 'queries', '', 'Queries that were evaluated.'),
        ('eval/<split>/failed', 'queries', 'lower', 'Queries failed by a service.'),
        ('eval/<split>/dataset/<dataset>', '', 'higher', 'Score on one data set.'),
        ('eval/<split>/legal/<role>', 'share', 'higher', 'Replies of legal format.'),
    ),
    'Rewards': (
        (REWARD, '', 'higher', 'Mean reward of the calls of a role.'),
        ('role/<role>/reward/<part>', '', 'higher', 'Mean of one part of the reward.'),
        ('role/<role>/advantage_mean', '', '', 'Mean advantage that the rule gave.'),
        ('role/<role>/advantage_std', '', '', 'Spread of the advantages.'),
        ('credit/credited', 'calls', 'higher', 'Calls that are trained on.'),
        ('credit/masked', 'calls', 'lower', 'Calls kept out of loss and baselines.'),
        ('credit/masked/<reason>', 'calls', 'lower', 'The same, by reason.'),
        ('credit/dropped', 'calls', 'lower', 'Calls whose tokens were discarded.'),
        ('credit/dropped/<reason>', 'calls', 'lower', 'The same, by reason.'),
        ('credit/zero_groups', 'groups', 'lower', 'Groups without any contrast.'),
    ),
    'Replies': (
        (LEGAL, 'share', 'higher', 'Replies whose format is legal.'),
        ('role/<role>/truncated', 'share', 'lower', 'Replies cut at their limit.'),
        ('role/<role>/response_tokens', 'tokens', '', 'Mean length of a reply.'),
        ('role/<role>/prompt_tokens', 'tokens', '', 'Mean length of a prompt.'),
        ('role/<role>/cut_tokens', 'tokens', 'lower', 'Mean tokens cut from a prompt.'),
        ('role/<role>/calls', 'calls', '', 'Calls of the step.'),
    ),
    'Learning': (
        ('model/<model>/ppo/loss', '', '', 'Policy loss.'),
        ('model/<model>/ppo/value_loss', '', 'lower', "Loss of the critic's values."),
        ('model/<model>/ppo/entropy', 'nats', '', 'Mean entropy for each token.'),
        ('role/<role>/entropy', 'nats', '', 'Mean entropy for each token of a role.'),
        ('model/<model>/ppo/kl_old', 'nats', '', 'Distance from the sampling policy.'),
        ('model/<model>/ppo/kl_reference', 'nats', '', 'Distance from the reference.'),
        ('model/<model>/ppo/kl_beta', '', '', 'Weight of the distance in force.'),
        ('model/<model>/ppo/clip_share', 'share', '', 'Tokens clipped by the ratio.'),
        ('model/<model>/ppo/dual_clip_share', 'share', '', 'Tokens at the dual clip.'),
        (
            'model/<model>/ppo/explained_variance',
            '',
            'higher',
            "Share of the returns' variance that the critic explains; 1 is perfect.",
        ),
        ('model/<model>/ppo/grad_norm', '', '', 'Norm of the gradient, before clip.'),
        ('model/<model>/ppo/learning_rate', '', '', 'Step size in force.'),
        ('role/<role>/loss_share', 'share', '', "Share of a role in its model's loss."),
        ('role/<role>/mismatch', 'nats', 'lower', 'Sampler against trainer, mean.'),
        ('role/<role>/mismatch_max', 'nats', 'lower', 'Sampler against trainer, max.'),
        ('model/<model>/ppo/importance_weight', '', '', 'Mean weight for that gap.'),
        ('model/<model>/ppo/importance_truncated', 'share', '', 'Weights at the cap.'),
        ('model/<model>/sft/loss', 'nats', 'lower', 'Warm start: loss for each token.'),
    ),
    'Speed': (
        (TOKENS_PER_SECOND, 'tokens/s', 'higher', 'Sampled tokens over step time.'),
        ('model/<model>/tokens_per_second', 'tokens/s', 'higher', 'While sampling.'),
        ('model/<model>/ppo/tokens_per_second', 'tokens/s', 'higher', 'In training.'),
        (
            'model/<model>/engine/row_occupancy',
            'share',
            'higher',
            'Rows that decode, of all rows.',
        ),
        (
            'model/<model>/engine/prefix_hit_tokens',
            'tokens',
            'higher',
            'Prompt tokens whose cache pages were reused.',
        ),
        ('model/<model>/ppo/padding_waste', 'share', 'lower', 'Padding in the batch.'),
        ('model/<model>/engine/compilations', 'programs', 'lower', 'After warm-up.'),
        ('system/wire_bytes_per_call', 'bytes', 'lower', 'Sent beyond the text.'),
        ('system/failed', 'samples', 'lower', 'Samples that a service failed.'),
        ('system/restarts', '', 'lower', 'Times that lost workers were started again.'),
    ),
    'Time': (
        (PHASE, 's', 'lower', 'Seconds of the step, by phase; `step` is the whole.'),
        ('time/<model>/<phase>', 's', 'lower', 'Seconds of a model in a phase.'),
    ),
}

METRICS = tuple(
    Metric(pattern=pattern, group=group, unit=unit, better=better, text=text)
    for group, rows in _TABLE.items()
    for pattern, unit, better, text in rows
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


def mean(metrics: Mapping[str, float], pattern: str) -> float | None:
    """Return the mean over the metrics that a pattern covers; None without any."""
    values = select(metrics, pattern).values()
    return statistics.fmean(values) if values else None


@functools.cache
def _regex(pattern: str) -> re.Pattern[str]:
    pieces = re.split(r'<\w+>', pattern)
    return re.compile('([^/]+)'.join(re.escape(piece) for piece in pieces))
