"""`unimas sft`: the supervised warm start of an experiment, without reinforcement."""

import argparse

from unimas_jax.cli import flags, train
from unimas_jax.specs import require


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        'sft',
        help='run the supervised warm start of an experiment only',
        description='Train every model on the demonstrations of Experiment.sft and '
        'evaluate. `unimas train` with the same output folder goes on from there.',
    )
    train.add_training_flags(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the warm start; return the exit status."""
    sft = flags.load(args).experiment.sft
    require(sft is not None, 'Experiment.sft', sft, 'give it demonstrations.')
    return train.train(args, last_step=0)
