"""`unimas check`: find what is wrong with an experiment before it costs anything."""

import argparse
import sys

from unimas_jax.cli import flags
from unimas_jax.controller import session
from unimas_jax.workflows import check


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        'check',
        help='find what is wrong with an experiment, without running it',
        description='Load an experiment and look for faults in its graph, mapping, '
        'rewards, prompts and meshes; its data is read, and the functions of the '
        'workflow run once on sample values. Each fault is one line; the status is 1 '
        'if there is any.',
    )
    flags.add_experiment_flags(parser)
    parser.add_argument(
        '--without_data',
        action='store_true',
        help='do not read the data, and do not run the functions of the workflow',
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Check and print; return the exit status."""
    experiment = flags.load(args).experiment
    query = None
    if not args.without_data:
        queries, dropped = session.load(
            experiment, ('train', 'dev', 'test'), args.data_dir
        )
        query = queries['train'][0]
        for line in dropped:
            print(line)
    problems = check.check(experiment, query)
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        return 1
    for model, roles in experiment.groups.items():
        print(f'{model}: {", ".join(roles)}')
    print(f'{experiment.workflow.name}: no faults found.')
    return 0
