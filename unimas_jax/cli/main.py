"""The command `unimas`: one subcommand for each thing a user does."""

import argparse
import os
import sys
from collections.abc import Sequence

from unimas_jax import specs
from unimas_jax.cli import (
    check,
    credit,
    dryrun,
    evaluate,
    export,
    plan,
    report,
    sft,
    traces,
    train,
)
from unimas_jax.controller.backend import WorkerLost
from unimas_jax.controller.episodes import FailureRatioExceeded
from unimas_jax.controller.loop import Diverged
from unimas_jax.controller.router import RequestRefused

COMMANDS = (train, evaluate, sft, export, check, plan, dryrun, traces, credit, report)
INTERRUPTED = 130

ENDED = (FailureRatioExceeded, WorkerLost, Diverged, RequestRefused)
"""What ends a run although the program is right; their messages say it all."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        prog='unimas',
        description='Reinforcement learning of multi-agent LLM workflows in JAX.',
    )
    subparsers = parser.add_subparsers(required=True, metavar='COMMAND')
    for command in COMMANDS:
        command.add_parser(subparsers)
    args = parser.parse_args(argv)
    # Only tokenizers are used of transformers, which would advise to install torch.
    os.environ.setdefault('TRANSFORMERS_NO_ADVISORY_WARNINGS', '1')
    try:
        return args.run(args)
    except specs.SpecError as error:
        print(f'unimas: {error}', file=sys.stderr)
        return 2
    except ENDED as error:
        # What a lost device says goes on with pages of its memory.
        first_line, *_ = f'unimas: {error}'.splitlines()
        print(first_line, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == '__main__':
    sys.exit(main())
