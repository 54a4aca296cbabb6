"""`unimas check`: find what is wrong with an experiment before it costs anything."""

import argparse
import asyncio
import sys
from collections.abc import Sequence

from unimas_jax.cli import flags
from unimas_jax.controller import dry_run, stand_ins, step
from unimas_jax.runtime import dry, mesh_check
from unimas_jax.specs import Experiment, SpecError, require
from unimas_jax.trace import Query
from unimas_jax.workflows import check, scripted
from unimas_jax.workflows.frame import WorkflowError, naming


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        'check',
        help='find what is wrong with an experiment, without running it',
        description='Load an experiment and look for faults in its graph, mapping, '
        'rewards, prompts and meshes; its data is read, the functions of the workflow '
        'run once on sample values, and a step is played with sample replies. Each '
        'fault is one line; the status is 1 if there is any. Without --data_dir, '
        'queries are made up where the data are not in the current folder.',
    )
    flags.add_experiment_flags(parser)
    parser.set_defaults(data_dir=None)
    parser.add_argument(
        '--without_data',
        action='store_true',
        help='do not read the data, and do not run the functions of the workflow',
    )
    parser.add_argument(
        '--devices',
        type=int,
        default=0,
        metavar='N',
        help='chips of the machine it will run on, to check that the meshes fit; 0 '
        'leaves that out (default: 0)',
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Check and print; return the exit status."""
    require(args.devices >= 0, '--devices', args.devices, 'use 0 or more.')
    experiment = flags.load(args).experiment
    queries, lines = [], []
    if not args.without_data:
        queries, lines = stand_ins.queries(experiment, args.data_dir)
    faults, notes = mesh_check.check(experiment.models, devices=args.devices)
    for line in [*lines, *notes]:
        print(line)
    faults += check.check(experiment, queries[0] if queries else None)
    if queries and not faults:
        faults += _played(experiment, queries)
    for fault in faults:
        print(fault, file=sys.stderr)
    if faults:
        return 1
    for model, roles in experiment.groups.items():
        print(f'{model}: {", ".join(roles)}')
    print(f'{experiment.workflow.name}: no faults found.')
    return 0


def _played(experiment: Experiment, queries: Sequence[Query]) -> list[str]:
    """Return why a step with sample replies cannot be played, if it cannot.

    Rewards and credit, the user's own too, run as in training. Where a format or a
    tool has no sample, there is nothing to play with.
    """
    formats = [role.format for role in experiment.workflow.roles]
    parts = [*formats, *experiment.tools.values()]
    if not all(hasattr(part, 'sample') for part in parts):
        return []
    try:
        with naming('a step with sample replies'):
            asyncio.run(_play(experiment, queries))
    except (SpecError, WorkflowError) as fault:
        return [str(fault)]
    return []


async def _play(experiment: Experiment, queries: Sequence[Query]) -> None:
    """Play two samples of a query, in which some replies are malformed."""
    script = scripted.varied_script(
        experiment.workflow.roles, malformed=0.25, seed=experiment.seed
    )
    player = scripted.ScriptedPlayer(script)
    tokenizers, _ = dry.tokenizers_of(experiment.models)
    await dry_run.play(
        experiment,
        dry.DryRuntime(experiment, player, tokenizers),
        step.batch(queries, cursor=0, count=1, seed=experiment.seed),
        samples=2,
        tools={
            name: stand_ins.SampleTool(tool.sample())
            for name, tool in experiment.tools.items()
        },
        endpoints=dict.fromkeys(experiment.endpoints, player),
    )
