"""`unimas export`: write the models of a run as Hugging Face folders."""

import argparse
import asyncio

from unimas_jax.cli import flags
from unimas_jax.controller import session
from unimas_jax.metrics.run_folder import RunFolder


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        'export',
        help='write the models of a run as Hugging Face folders',
        description='Write each trained model of a checkpoint as a folder that '
        'transformers loads: sharded safetensors, config and tokenizer.',
    )
    flags.add_experiment_flags(parser)
    flags.add_run_flags(parser)
    parser.add_argument(
        '--export_dir',
        required=True,
        metavar='DIR',
        help='a folder for each model is made below it; a model with adapters gets '
        'one below its own for each role, with the adapter merged into the base',
    )
    parser.add_argument(
        '--checkpoint',
        default='last',
        metavar='WHICH',
        help='last, best (on dev) or a step (default: last)',
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Export; return the exit status."""
    loaded = flags.load(args)
    folder = RunFolder(args.output_dir)
    folder.require_run()
    written = asyncio.run(
        session.export_run(
            loaded.experiment,
            flags.open_backend(args, loaded),
            folder,
            export_dir=args.export_dir,
            checkpoint=args.checkpoint,
        )
    )
    for path in written:
        print(path)
    return 0
