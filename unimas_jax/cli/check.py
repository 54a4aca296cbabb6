"""`unimas check`: find what is wrong with an experiment before it costs anything."""

import argparse
import sys

from unimas_jax.cli import flags
from unimas_jax.workflows import check


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        'check',
        help='find what is wrong with an experiment, without running it',
        description='Load an experiment and look for faults in its graph, mapping, '
        'rewards, prompts and meshes. Each is one line; the status is 1 if any.',
    )
    flags.add_experiment_flags(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Check and print; return the exit status."""
    experiment = flags.load(args).experiment
    problems = check.check(experiment)
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        return 1
    for model, roles in experiment.groups.items():
        print(f'{model}: {", ".join(roles)}')
    print(f'{experiment.workflow.name}: no faults found.')
    return 0
