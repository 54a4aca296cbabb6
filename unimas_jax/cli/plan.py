"""`unimas plan`: what an experiment needs of some chips, without the chips."""

import argparse
import os

from unimas_jax.cli import flags
from unimas_jax.runtime import topology


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        'plan',
        help='say whether an experiment fits into some chips, and how fast it can be',
        description='Count the bytes of every model on a chip from the shapes and '
        'shardings of training, bound what its programs need besides, and say what '
        'fits and what arithmetic and memory traffic allow: tokens per second at '
        'most, and the least time of a step in which each role is called once for '
        'each sample and uses its whole limits. Needs no weights and no accelerator. '
        'The status is 1 if it does not fit.',
    )
    flags.add_experiment_flags(parser)
    parser.add_argument(
        '--topology',
        required=True,
        metavar='KIND:SIZE',
        help='the chips, like v5e:4x4, v5p:4x4x4, v6e:4x4 or gpu:8',
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Plan and print; return the exit status."""
    chips = topology.parse(args.topology)
    experiment = flags.load(args).experiment
    # Stand-ins of a plan, whatever this machine has.
    os.environ['JAX_PLATFORMS'] = 'cpu'
    os.environ['JAX_NUM_CPU_DEVICES'] = str(chips.num_chips)
    # Here because they load jax, which the driver of a run must not.
    from unimas_jax.runtime import plan, plan_text

    made = plan.make(experiment, chips)
    print(f'{experiment.workflow.name} on {chips.name}')
    for line in plan_text.lines(made):
        print(line)
    return 0 if made.fits else 1
