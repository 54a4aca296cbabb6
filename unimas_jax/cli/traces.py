"""`unimas traces`: see in the terminal who said what, and what it earned."""

import argparse
import itertools
from collections.abc import Iterator, Sequence

from etils import epath
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from unimas_jax.metrics import trace_view, traces
from unimas_jax.metrics.markup import printable
from unimas_jax.metrics.run_folder import RunFolder
from unimas_jax.specs import SpecError, require
from unimas_jax.trace import Credit, Trace

Found = tuple[Trace, tuple[Credit, ...]]

_SHORT_LINES = 6
_SHORT_CHARACTERS = 480
_STATUS_STYLE = {
    'ok': 'green',
    'continued': 'green',
    'finished': 'green',
    'illegal': 'red',
    'truncated': 'yellow',
    'failed': 'red',
}


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        'traces',
        help='show the traces of a run',
        description='Show what the roles and tools of a run said and earned.',
    )
    actions = parser.add_subparsers(required=True, metavar='ACTION')

    show = actions.add_parser('show', help='show single traces as trees')
    show.add_argument('run_dir', metavar='RUN_DIR', help='the --output_dir of a run')
    show.add_argument('--step', type=int, metavar='N', help='default: the last one')
    show.add_argument(
        '--split',
        default='',
        metavar='SPLIT',
        help='dev or test: traces of an evaluation (default: of training)',
    )
    which = show.add_mutually_exclusive_group()
    which.add_argument('--query', metavar='ID', help='all samples of this query')
    which.add_argument(
        '--best', type=int, metavar='K', help='the K traces of highest mean reward'
    )
    which.add_argument(
        '--worst', type=int, metavar='K', help='the K traces of lowest mean reward'
    )
    show.add_argument('--full', action='store_true', help='do not shorten texts')
    show.set_defaults(run=run, action=_show)

    listing = actions.add_parser('list', help='list the files of traces')
    listing.add_argument('run_dir', metavar='RUN_DIR', help='the --output_dir of a run')
    listing.set_defaults(run=run, action=_list)


def run(args: argparse.Namespace) -> int:
    """Run `show` or `list`; return the exit status."""
    folder = RunFolder(args.run_dir)
    folder.require_run()
    args.action(folder, args, Console(highlight=False, markup=False))
    return 0


def _list(folder: RunFolder, args: argparse.Namespace, console: Console) -> None:
    del args
    table = Table('step', 'split', 'traces', 'size')
    for column in table.columns:
        column.justify = 'right'
    for step, split in folder.trace_files():
        path = folder.trace_path(step, split)
        size = path.stat().length / 1024
        table.add_row(
            f'{step}', split or 'train', f'{traces.count(path)}', f'{size:,.1f} KiB'
        )
    console.print(table)


def _show(folder: RunFolder, args: argparse.Namespace, console: Console) -> None:
    path = _file(folder, args.step, args.split)
    console.print(Text(f'{path}: {traces.count(path)} traces', style='dim'))
    shown = 0
    for trace, credits in _chosen(path, args):
        console.print()
        console.print(_as_tree(trace, credits, is_full=args.full))
        shown += 1
    if args.query is not None and not shown:
        raise SpecError(
            f'--query is {args.query!r}: {path} has no such query; '
            'leave it out to see one that is there.'
        )


def _file(folder: RunFolder, step: int | None, split: str) -> epath.Path:
    """Return the file to read.

    Raises:
        SpecError: There is none.
    """
    steps = [n for n, name in folder.trace_files() if name == split]
    if not steps:
        splits = sorted({name or 'train' for _, name in folder.trace_files()})
        raise SpecError(
            f'--split is {split or "train"!r}: {folder.traces} has traces of {splits}.'
        )
    if step is not None and step not in steps:
        raise SpecError(
            f'--step is {step}: there are traces of {len(steps)} steps from '
            f'{steps[0]} to {steps[-1]}; see `unimas traces list {folder.root}`.'
        )
    return folder.trace_path(steps[-1] if step is None else step, split)


def _chosen(path: epath.Path, args: argparse.Namespace) -> Iterator[Found]:
    """Yield the traces that the flags name; the first one without flags."""
    if args.query is not None:
        for trace, credits in traces.read(path):
            if args.query in (trace.query.id, trace.query_key):
                yield trace, credits
    elif args.best is not None or args.worst is not None:
        flag = '--worst' if args.best is None else '--best'
        wanted = args.worst if args.best is None else args.best
        require(wanted >= 1, flag, wanted, 'use 1 or more.')
        order = trace_view.ranking(path)
        if not order:
            raise SpecError(
                f'{flag} is {wanted}: {path} has no credited trace to rank; '
                'leave it out.'
            )
        places = (order[::-1] if args.best is None else order)[:wanted]
        found = {n: pair for n, pair in enumerate(traces.read(path)) if n in places}
        yield from (found[place] for place in places)
    else:
        yield from itertools.islice(traces.read(path), 1)


def _as_tree(trace: Trace, credits: Sequence[Credit], *, is_full: bool) -> Tree:
    """Return a trace with its turns as branches, and calls in order."""
    tree = Tree(_heading(trace, credits, is_full=is_full))
    calls = trace_view.calls(trace, credits)
    has_turns = any(call.invocation.key.turn for call in calls)
    turns: dict[int, Tree] = {}
    for call in calls:
        turn = call.invocation.key.turn
        if not has_turns:
            turns[turn] = tree
        elif turn not in turns:
            turns[turn] = tree.add(Text(f'turn {turn + 1}', style='bold'))
        turns[turn].add(_call(call, is_full=is_full))
    return tree


def _heading(
    trace: Trace, credits: Sequence[Credit], *, is_full: bool
) -> RenderableType:
    first = Text(f'{trace.query_key} sample {trace.sample}', style='bold')
    status = trace.leaves[0].status if trace.leaves else 'failed'
    first.append(f'  {trace_view.outcome(trace)}', style=_STATUS_STYLE[status])
    reward = trace_view.mean_reward(credits)
    if reward is not None:
        first.append(f'  mean reward {reward:+.2f}', style='bold cyan')
    first.append(f'  {trace.seconds:.1f} s', style='dim not bold')
    lines = [first]
    fields = {**trace.query.fields, 'gold': trace.query.gold}
    for name, value in fields.items():
        text = _shortened(trace_view.as_text(value), is_full=is_full)
        lines.append(Text.assemble((f'{name}: ', 'dim'), text))
    return Group(*lines)


def _call(call: trace_view.Call, *, is_full: bool) -> RenderableType:
    invocation = call.invocation
    colour = 'bold magenta' if invocation.kind == 'role' else 'bold blue'
    first = Text(f'#{call.number} ').append(invocation.name, style=colour)
    where = [trace_view.place(invocation), invocation.model]
    where += [f'reads #{" #".join(map(str, call.parents))}' if call.parents else '']
    first.append(f'  {", ".join(filter(None, where))}', style='dim')
    status = invocation.status
    reason = f'{status}: {invocation.error}' if invocation.error else status
    reason = _shortened(reason, is_full=is_full)
    first.append(f'  {reason}', style=_STATUS_STYLE[status])
    first.append(f'  {trace_view.cost(invocation)}', style='dim')
    lines: list[RenderableType] = [first]
    if call.credit is not None:
        lines.append(Text(trace_view.earnings(call.credit), style='cyan'))
    text = _shortened(trace_view.said(invocation), is_full=is_full)
    if text:
        lines.append(Padding(Text(text), (0, 0, 0, 2)))
    return Group(*lines)


def _shortened(text: str, *, is_full: bool) -> str:
    """Return the beginning of a text, and how much more there is."""
    text = printable(text).strip()
    if is_full:
        return text
    short = '\n'.join(text.splitlines()[:_SHORT_LINES])[:_SHORT_CHARACTERS]
    left = len(text) - len(short)
    return f'{short} … (+{left} characters, see --full)' if left else short
