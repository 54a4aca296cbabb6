"""One step's traces and credits as metrics, per workflow, role and tool.

Names: `workflow/<name>/...`, `role/<role>/...`, `tool/<tool>/...`, `credit/...`. Ratios
are in [0, 1]; lengths are in tokens. Nothing here depends on time, so that a repeated
step gives the same numbers.
"""

import collections
import statistics
from collections.abc import Iterable, Sequence

from unimas_jax.rewards import accounting, parts
from unimas_jax.specs import Experiment
from unimas_jax.trace import Credit, Invocation, TraceGroup


def summarize(
    groups: Sequence[TraceGroup], credits: Sequence[Credit], experiment: Experiment
) -> dict[str, float]:
    """Return the metrics of a step.

    Args:
        groups: All traces of the step.
        credits: Of all trainable invocations; may be empty (evaluation).
        experiment: Gives the workflow's name and the score.
    """
    metrics = _workflow(groups, experiment)
    by_role: dict[str, list[Invocation]] = collections.defaultdict(list)
    by_tool: dict[str, list[Invocation]] = collections.defaultdict(list)
    for group in groups:
        for trace in group.traces:
            for call in trace.invocations:
                (by_role if call.kind == 'role' else by_tool)[call.name].append(call)
    for role, calls in by_role.items():
        metrics |= _prefixed(f'role/{role}', _role(calls))
    for tool, calls in by_tool.items():
        metrics |= _prefixed(f'tool/{tool}', _tool(calls))
    credited: dict[str, list[Credit]] = collections.defaultdict(list)
    for credit in credits:
        if credit.status == 'credited':
            credited[credit.role].append(credit)
    for role, own in credited.items():
        metrics |= _prefixed(f'role/{role}', _earnings(own))
    if credits:
        metrics |= accounting.counts(credits)
    return metrics


def _workflow(groups: Sequence[TraceGroup], experiment: Experiment) -> dict[str, float]:
    """Return the score and how workflows ended; failed leaves have no score."""
    traces = [trace for group in groups for trace in group.traces]
    leaves = [leaf for trace in traces for leaf in trace.leaves_under(())]
    scores = [parts.score(experiment.reward, trace) for trace in traces]
    alive = [leaf for leaf in leaves if leaf.status != 'failed']
    metrics = {
        'samples': float(len(traces)),
        'failed': _share(leaf.status == 'failed' for leaf in leaves),
    }
    if alive:
        metrics |= {
            'score': statistics.fmean(s for s in scores if s is not None),
            'illegal': _share(leaf.status == 'illegal' for leaf in alive),
            'turns': statistics.fmean(leaf.turns for leaf in alive),
        }
    return _prefixed(f'workflow/{experiment.workflow.name}', metrics)


def _role(calls: Sequence[Invocation]) -> dict[str, float]:
    """Return what a role's calls looked like.

    `legal` is the share of finished replies that keep their format, calls for tools
    apart; `truncated` that of all replies cut by the length limit, legal or not.
    """
    spoken = [call for call in calls if call.status != 'failed']
    metrics = {
        'calls': float(len(calls)),
        'failed': _share(call.status == 'failed' for call in calls),
    }
    if not spoken:
        return metrics
    final = [call for call in spoken if call.status != 'continued']
    if final:
        metrics['legal'] = _share(call.status == 'ok' for call in final)
        metrics['illegal'] = _share(call.status == 'illegal' for call in final)
    return metrics | {
        'truncated': _share(call.finish_reason == 'length' for call in spoken),
        'prompt_tokens': statistics.fmean(call.prompt_tokens for call in spoken),
        'response_tokens': statistics.fmean(call.response_tokens for call in spoken),
        'cut_tokens': statistics.fmean(
            sum(tokens for _, tokens in call.cuts) for call in spoken
        ),
        'log_prob': statistics.fmean(call.mean_log_prob for call in spoken),
    }


def _tool(calls: Sequence[Invocation]) -> dict[str, float]:
    return {
        'calls': float(len(calls)),
        'failed': _share(call.status == 'failed' for call in calls),
        'attempts': statistics.fmean(call.attempts for call in calls),
    }


def _earnings(credits: Sequence[Credit]) -> dict[str, float]:
    """Return mean reward and parts of a role, and the spread of its advantages."""
    rewards = [credit.reward for credit in credits]
    metrics = {
        'reward': statistics.fmean(rewards),
        'reward_std': statistics.pstdev(rewards),
    }
    for name in dict.fromkeys(name for credit in credits for name in credit.parts):
        earned = (credit.parts.get(name, 0.0) for credit in credits)
        metrics[f'reward/{name}'] = statistics.fmean(earned)
    advantages = [c.advantage for c in credits if c.advantage is not None]
    if advantages:
        metrics['advantage_mean'] = statistics.fmean(advantages)
        metrics['advantage_std'] = statistics.pstdev(advantages)
    return metrics


def _prefixed(prefix: str, metrics: dict[str, float]) -> dict[str, float]:
    return {f'{prefix}/{name}': value for name, value in metrics.items()}


def _share(flags: Iterable[bool]) -> float:
    return statistics.fmean(flags)
