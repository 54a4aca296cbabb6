"""`unimas eval`: judge a checkpoint of a run, or a model before any training."""

import argparse
import asyncio
import dataclasses
import json

from unimas_jax.cli import flags
from unimas_jax.controller import session
from unimas_jax.metrics.run_folder import RunFolder


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        'eval',
        help='evaluate a checkpoint of a run',
        description='Run the workflow on a split and print its scores as one JSON '
        'object. A sample that fails by infrastructure counts as wrong.',
    )
    flags.add_experiment_flags(parser)
    flags.add_run_flags(parser)
    parser.add_argument(
        '--split',
        action='append',
        choices=('train', 'dev', 'test'),
        help='what to evaluate on; repeatable (default: test)',
    )
    parser.add_argument(
        '--step',
        type=int,
        default=None,
        help='which checkpoint (default: the newest; without any, initial weights)',
    )
    parser.add_argument(
        '--samples', type=int, default=None, help='samples of each query'
    )
    parser.add_argument(
        '--temperature', type=float, default=None, help='of every role; 0 is greedy'
    )
    parser.add_argument(
        '--max_queries', type=int, default=None, help='queries of a split; 0 uses all'
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Evaluate and print; return the exit status."""
    loaded = flags.load(args)
    chosen = {
        name: getattr(args, name)
        for name in ('samples', 'temperature', 'max_queries')
        if getattr(args, name) is not None
    }
    experiment = dataclasses.replace(
        loaded.experiment,
        evaluation=dataclasses.replace(loaded.experiment.evaluation, **chosen),
    )
    folder = RunFolder(args.output_dir)
    folder.prepare()
    metrics = asyncio.run(
        session.evaluate_run(
            experiment,
            flags.open_backend(args, loaded),
            folder,
            splits=args.split or ['test'],
            data_dir=args.data_dir,
            step=args.step,
        )
    )
    print(json.dumps(metrics, sort_keys=True))
    return 0
