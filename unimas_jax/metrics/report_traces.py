"""Sample traces of a report, so that the reader sees what the numbers mean.

Of the last training step: the traces with the highest, a middle and the lowest reward.
Of each evaluation split: its first query, as first and as last evaluated.
"""

from collections.abc import Iterator

from unimas_jax.metrics import trace_view, traces
from unimas_jax.metrics.markup import escape
from unimas_jax.metrics.run_folder import RunFolder
from unimas_jax.trace import Credit, Trace

# Longer texts are cut: the terminal view shows them in full.
_TEXT_LIMIT = 4000


def render(folder: RunFolder) -> str:
    """Return the section as HTML; empty when the folder holds no traces.

    Raises:
        SpecError: A file of traces is damaged.
    """
    cards = [
        _trace(title, trace, credits)
        for title, trace, credits in _chosen_traces(folder)
    ]
    return '<h2>Sample traces</h2>' + ''.join(cards) if cards else ''


def _chosen_traces(
    folder: RunFolder,
) -> Iterator[tuple[str, Trace, tuple[Credit, ...]]]:
    files = folder.trace_files()
    training = [step for step, split in files if not split]
    if training:
        path = folder.trace_path(training[-1])
        order = trace_view.ranking(path)
        picks = {}
        if order:
            picks[order[-1]] = 'lowest reward'
            picks[order[len(order) // 2]] = 'middle reward'
            picks[order[0]] = 'highest reward'
        found = {}
        for index, (trace, credits) in enumerate(traces.read(path)):
            if index in picks:
                found[index] = trace, credits
        for index in reversed(picks):
            yield f'Step {training[-1]}, {picks[index]}', *found[index]
    for split in sorted({split for _, split in files if split}):
        evaluated = [step for step, name in files if name == split]
        for step in dict.fromkeys((evaluated[0], evaluated[-1])):
            first = next(traces.read(folder.trace_path(step, split)), None)
            if first is not None:
                yield f'{split}, step {step}', *first


def _trace(title: str, trace: Trace, credits: tuple[Credit, ...]) -> str:
    calls = trace_view.calls(trace, credits)
    turn = None
    parts = []
    has_turns = any(call.invocation.key.turn for call in calls)
    for call in calls:
        if has_turns and call.invocation.key.turn != turn:
            turn = call.invocation.key.turn
            parts.append(f'<h3 style="margin-top:16px">Turn {turn + 1}</h3>')
        parts.append(_call(call))
    fields = ''.join(
        f'<p><b>{escape(name)}</b> {escape(_cut(trace_view.as_text(value)))}</p>'
        for name, value in trace.query.fields.items()
    )
    gold = escape(_cut(trace_view.as_text(trace.query.gold)))
    reward = trace_view.mean_reward(credits)
    summary = f'{title}: {trace.query.id}, {trace_view.outcome(trace)}'
    if reward is not None:
        summary += f', mean reward {reward:+.2f}'
    return (
        f'<details class="card trace"><summary>{escape(summary)}</summary>'
        f'{fields}<p><b>gold</b> {gold}</p>{"".join(parts)}</details>'
    )


def _call(call: trace_view.Call) -> str:
    invocation = call.invocation
    kind = 'role' if invocation.kind == 'role' else 'tool'
    where = trace_view.place(invocation)
    about = [where, invocation.model, trace_view.cost(invocation)]
    if call.parents:
        about.append('reads ' + ', '.join(f'#{n}' for n in call.parents))
    if call.credit is not None:
        about.append(trace_view.earnings(call.credit))
    status = ''
    if invocation.status not in ('ok', 'continued'):
        reason = f'{invocation.status}: {invocation.error}'
        status = f' <span class="bad">{escape(reason)}</span>'
    text = escape(_cut(trace_view.said(invocation)))
    return (
        f'<div class="call {kind} {invocation.status}">#{call.number} '
        f'<b>{escape(invocation.name)}</b>{status}'
        f'<br/><span class="sub">{escape(" · ".join(filter(None, about)))}</span>'
        f'<pre>{text}</pre></div>'
    )


def _cut(text: str) -> str:
    if len(text) <= _TEXT_LIMIT:
        return text
    return f'{text[:_TEXT_LIMIT]}… ({len(text) - _TEXT_LIMIT} more characters)'
