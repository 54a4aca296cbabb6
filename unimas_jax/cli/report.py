"""`unimas report`: make `report.html` again from the files of a run."""

import argparse

from unimas_jax.metrics import report
from unimas_jax.metrics.run_folder import RunFolder


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        'report',
        help='make report.html of a run',
        description='Make report.html of a run from its metrics.jsonl, traces and '
        'configuration, also while the run goes on.',
    )
    parser.add_argument(
        'run_dir', metavar='RUN_DIR', help='the --output_dir of a run, also gs://'
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Make the report; return the exit status."""
    folder = RunFolder(args.run_dir)
    report.write(folder)
    print(folder.report)
    return 0
