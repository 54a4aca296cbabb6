"""`unimas eval`: judge a checkpoint of a run, or a model before any training."""

import argparse
import asyncio
import dataclasses
import json

from unimas_jax.cli import flags
from unimas_jax.controller import session
from unimas_jax.metrics import evaluation_table
from unimas_jax.metrics.run_folder import RunFolder


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        'eval',
        help='evaluate the last and the best checkpoint of a run',
        description='Run the workflow on a split with the last and the best checkpoint '
        'of a run and print a table of scores and costs; the last line is the same as '
        'one JSON object. A sample that fails by infrastructure counts as wrong.',
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
        '--checkpoint',
        action='append',
        metavar='WHICH',
        help='last, best (on dev) or a step; repeatable (default: last and best; '
        'without any checkpoint, initial weights)',
    )
    parser.add_argument(
        '--samples',
        type=int,
        default=None,
        metavar='K',
        help='samples of each query, for avg@K and pass@K; above 1 they need a '
        'temperature above 0',
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
            checkpoints=args.checkpoint,
        )
    )
    print(evaluation_table.render(metrics))
    print(json.dumps(metrics, sort_keys=True))
    return 0
