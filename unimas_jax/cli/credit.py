"""`unimas credit`: try other credit rules on the traces of a run."""

import argparse
import dataclasses
import json
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from unimas_jax import config
from unimas_jax.metrics import traces
from unimas_jax.metrics.run_folder import RunFolder
from unimas_jax.rewards import catalog, compare
from unimas_jax.specs import Experiment, require
from unimas_jax.trace import Credit, Key

STORED, FROM_GIN = 'stored', 'gin'


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        'credit',
        help='compare credit rules on the traces of a run',
        description='Credit the traces of a run again, by other rules.',
    )
    actions = parser.add_subparsers(required=True, metavar='ACTION')
    comparing = actions.add_parser(
        'compare',
        help='show where two rules differ',
        description='Credit the stored traces of a run by two rules and show how far '
        'they agree, for each role, and the calls about which they differ most. '
        'Nothing is sampled and no model is loaded.',
    )
    comparing.add_argument(
        'run_dir', metavar='RUN_DIR', help='the --output_dir of a run'
    )
    comparing.add_argument(
        '--rule',
        action='append',
        required=True,
        metavar='RULE',
        help='a name, with settings if wanted, like Rloo or TurnGrpo(scale=False); '
        f'{STORED}: the credits as they were; {FROM_GIN}: the rule that the flags '
        f'below configure. Give two; a single one is compared with {STORED}',
    )
    comparing.add_argument(
        '--gin_file',
        action='append',
        default=[],
        metavar='FILE',
        help="replaces parts of the run's configuration; repeatable",
    )
    comparing.add_argument(
        '--gin_bindings',
        action='append',
        default=[],
        metavar='BINDING',
        help='one binding, which wins over files; repeatable',
    )
    comparing.add_argument(
        '--step',
        type=int,
        action='append',
        metavar='N',
        help='a training step; repeatable (default: all that have traces)',
    )
    comparing.add_argument(
        '--top', type=int, default=10, metavar='K', help='calls listed (default: 10)'
    )
    comparing.add_argument(
        '--json', action='store_true', help='print one JSON object instead of tables'
    )
    comparing.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Compare two rules; return the exit status."""
    names = [STORED, *args.rule] if len(args.rule) == 1 else args.rule
    require(len(names) == 2, '--rule', args.rule, 'give one or two rules.')
    require(args.top >= 0, '--top', args.top, 'use 0 or more.')
    folder = RunFolder(args.run_dir)
    folder.require_run()
    require(folder.config.exists(), 'RUN_DIR', args.run_dir, 'it holds no config.gin.')
    loaded = config.load(args.gin_file, args.gin_bindings, resolved=str(folder.config))
    rules = [_rule(name, loaded.experiment) for name in names]
    found: list[compare.Pair] = []
    altered: list[Key] = []
    for step in _steps(folder, args.step):
        stored = list(traces.read(folder.trace_path(step), types=_types(loaded.text)))
        _require_values(rules, names, stored, step)
        credits = [_credits(rule, stored, loaded.experiment) for rule in rules]
        found += compare.pairs(*credits, step=step)
        altered += compare.altered_rewards(stored, loaded.experiment.reward)
    require(bool(found), '--rule', names, 'there is no call that both of them credit.')
    note = ''
    if altered:
        note = (
            f'{len(altered)} stored rewards are not what the configuration gives, the '
            f'first is that of {_place(altered[0])}.'
        )
    if args.json:
        print(json.dumps(_as_json(names, found, args.top, note), sort_keys=True))
    else:
        _show(names, found, args.top, note)
    return 0


def _rule(name: str, experiment: Experiment) -> Callable[..., list[Credit]] | None:
    """Return a rule by its name on the command line; None takes stored credits."""
    if name == STORED:
        return None
    return experiment.credit if name == FROM_GIN else catalog.parse(name)


def _credits(
    rule: Callable[..., list[Credit]] | None,
    stored: compare.Stored,
    experiment: Experiment,
) -> list[Credit]:
    if rule is None:
        return [credit for _, credits in stored for credit in credits]
    return compare.recompute(
        rule, stored, reward=experiment.reward, mapping=experiment.mapping
    )


def _steps(folder: RunFolder, wanted: Sequence[int] | None) -> list[int]:
    """Return the training steps to read.

    Raises:
        SpecError: One has no traces.
    """
    steps = [step for step, split in folder.trace_files() if not split]
    require(bool(steps), 'RUN_DIR', str(folder.root), 'it holds no training traces.')
    for step in wanted or ():
        require(
            step in steps,
            '--step',
            step,
            f'there are traces of steps {steps[0]} to {steps[-1]}; see `unimas traces '
            f'list {folder.root}`.',
        )
    return sorted(set(wanted or steps))


def _require_values(
    rules: Sequence[Any], names: Sequence[str], stored: compare.Stored, step: int
) -> None:
    """Check that what rules ask of critics is in the traces.

    Raises:
        SpecError: It is not.
    """
    has_values = any(c.value is not None for _, credits in stored for c in credits)
    for rule, name in zip(rules, names, strict=True):
        require(
            has_values or not getattr(rule, 'needs_critic', False),
            '--rule',
            name,
            f"it needs critics' values, and the traces of step {step} have none "
            'since the run had no critic; choose a rule that compares rewards.',
        )


def _types(text: str) -> list[type]:
    """Return the dataclasses of this package and of the modules that gin imported.

    States may hold them, and metrics may read their fields.
    """
    own = set(re.findall(r'^(?:from ([\w.]+) )?import ([\w.]+)', text, re.MULTILINE))
    users = {'.'.join(filter(None, names)) for names in own}
    return [
        kind
        for name, module in list(sys.modules.items())
        if name.startswith('unimas_jax.') or name in users
        for kind in vars(module).values()
        if isinstance(kind, type) and dataclasses.is_dataclass(kind)
    ]


def _by_role(found: Sequence[compare.Pair]) -> dict[str, compare.Agreement]:
    roles = dict.fromkeys(pair.role for pair in found)
    return {
        role: compare.agreement([pair for pair in found if pair.role == role])
        for role in roles
    }


def _show(
    names: Sequence[str], found: Sequence[compare.Pair], top: int, note: str
) -> None:
    console = Console(highlight=False, markup=False)
    table = Table(
        'role',
        'calls',
        'correlation',
        'opposite sign',
        'one is 0',
        f'spread of {names[0]}',
        f'spread of {names[1]}',
        title=f'{names[0]} and {names[1]}',
    )
    for role, agreement in _by_role(found).items():
        correlation = agreement.correlation
        table.add_row(
            role,
            f'{agreement.calls}',
            'none' if correlation is None else f'{correlation:+.3f}',
            f'{agreement.opposed:.1%}',
            f'{agreement.one_silent:.1%}',
            *(f'{spread:.3g}' for spread in agreement.spread),
        )
    console.print(table)
    if top:
        table = Table('step', 'call', 'role', *names, title='largest differences')
        for pair in compare.largest(found, top):
            table.add_row(
                f'{pair.step}',
                _place(pair.key),
                pair.role,
                f'{pair.first:+.3f}',
                f'{pair.second:+.3f}',
            )
        console.print(table)
    if note:
        console.print(note)


def _place(key: Key) -> str:
    """Return a call's key as people read it, counted from 0 as in the key."""
    words = [f'{key.query} sample {key.sample} {key.node} turn {key.turn}']
    words += [f'fork {key.fork}'] if key.fork else []
    words += [f'branch {key.branch}'] if key.branch else []
    words += [f'call {key.call}'] if key.call else []
    return ' '.join(words)


def _as_json(
    names: Sequence[str], found: Sequence[compare.Pair], top: int, note: str
) -> dict[str, Any]:
    return {
        'rules': list(names),
        'roles': {
            role: dataclasses.asdict(agreement)
            for role, agreement in _by_role(found).items()
        },
        'largest': [dataclasses.asdict(pair) for pair in compare.largest(found, top)],
        'note': note,
    }
