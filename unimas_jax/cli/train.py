"""`unimas train`: train every model of an experiment, or continue a run."""

import argparse
import asyncio

from unimas_jax.cli import flags
from unimas_jax.controller import loop
from unimas_jax.metrics import report
from unimas_jax.metrics.run_folder import RunFolder


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        'train',
        help='train the models of an experiment, or continue a run',
        description='Train every model of an experiment. A run that is already in the '
        'output folder is continued from its last checkpoint, as if nothing had '
        'happened. SIGTERM saves a checkpoint and ends with status 0.',
    )
    add_training_flags(parser)
    parser.set_defaults(run=run)


def add_training_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of everything that trains."""
    flags.add_experiment_flags(parser)
    flags.add_run_flags(parser)
    parser.add_argument(
        '--allow_config_change',
        action='store_true',
        help='continue a run although the configuration differs from its own',
    )
    parser.add_argument(
        '--keep_rollouts',
        action='store_true',
        help='keep the tokens, log-probs and credits of every step in rollouts/STEP/, '
        'one file for each model, which worker.rollout_files reads',
    )
    parser.add_argument(
        '--wandb_project',
        default='',
        metavar='NAME',
        help='also send metrics to this project of Weights & Biases',
    )


def run(args: argparse.Namespace) -> int:
    """Train; return the exit status."""
    return train(args, last_step=None)


def train(args: argparse.Namespace, *, last_step: int | None) -> int:
    """Train up to a step, None for the experiment's last; return the exit status."""
    loaded = flags.load(args)
    folder = RunFolder(args.output_dir)
    folder.prepare()
    options = loop.RunOptions(
        config=loaded.text,
        allow_config_change=args.allow_config_change,
        data_dir=args.data_dir,
        last_step=last_step,
        wandb_project=args.wandb_project,
    )
    rollout_dir = str(folder.rollouts) if args.keep_rollouts else ''
    backend = flags.open_backend(args, loaded, rollout_dir=rollout_dir)
    position = asyncio.run(loop.train(loaded.experiment, backend, folder, options))
    report.write(folder)
    print(f'step {position.step} of {loaded.experiment.num_steps}: {folder.report}')
    return 0
