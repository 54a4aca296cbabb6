"""Turn a published data set into files that experiments read.

    python scripts/prepare_data.py hotpotqa --out DATA                 # from the hub
    python scripts/prepare_data.py hotpotqa --from FOLDER --out DATA   # from its files

Writes train.jsonl, dev.jsonl and test.jsonl to DATA/NAME as far as the set has them,
and corpus.jsonl where there are passages to retrieve from. Rows that cannot be used are
reported by number and reason; more than 1 % of them are an error, unless
--max_bad_ratio allows it. The splits share no question: what is in two of them stays in
test rather than dev, and in dev rather than train, and is reported with examples.

--against keeps train and dev free of other sets on which an experiment will report:

    python scripts/prepare_data.py amc --out DATA
    python scripts/prepare_data.py deepscaler --out DATA --against DATA/amc/test.jsonl

The last line is one JSON object with all counts.
"""

import argparse
import json
import logging
import sys

from etils import epath

from unimas_jax.data import preparing, published, splits
from unimas_jax.data.jsonl import JsonlSource
from unimas_jax.data.row_fields import RowError
from unimas_jax.specs import SpecError
from unimas_jax.tools import code_cases
from unimas_jax.tools.code_tests import TestFormatError
from unimas_jax.trace import Query


def main(argv: list[str] | None = None) -> int:
    """Prepare one data set; return the exit status."""
    args = _parse(argv)
    logging.basicConfig(level=logging.ERROR)
    chosen = published.SETS[args.name]
    try:
        source = epath.Path(args.source) if args.source else None
        report = preparing.prepare(
            args.name,
            source or preparing.download(chosen, revision=args.revision),
            epath.Path(args.out),
            against=_queries(args.against, chosen.prepared),
            held_out=args.held_out,
            max_bad_ratio=args.max_bad_ratio,
            accept=understood if chosen.prepared == 'code' else lambda query: None,
        )
    except SpecError as error:
        print(f'prepare_data: {error}', file=sys.stderr)
        return 2
    _print(report)
    return 0


def understood(query: Query) -> None:
    """Refuse a programming problem whose tests the verifier does not understand.

    Raises:
        RowError: With the reason.
    """
    try:
        code_cases.parse(
            query.gold, query_id=query.id, starter_code=query.fields['starter_code']
        )
    except TestFormatError as error:
        raise RowError(str(error)) from error


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest='name', required=True, metavar='NAME')
    for name, chosen in published.SETS.items():
        command = commands.add_parser(name, help=chosen.about, description=chosen.about)
        command.add_argument('--out', required=True, metavar='DIR')
        command.add_argument(
            '--from',
            dest='source',
            metavar='DIR',
            help=f'folder of the published files (default: {chosen.hub} on the hub)',
        )
        command.add_argument(
            '--revision', metavar='NAME', help='of the repository on the hub'
        )
        command.add_argument(
            '--against',
            action='append',
            default=[],
            metavar='FILE',
            help='prepared file of which train and dev must hold nothing; repeatable',
        )
        command.add_argument(
            '--held_out',
            type=int,
            metavar='N',
            help='queries of train that become dev where none is published '
            f'(default: {chosen.held_out})',
        )
        command.add_argument(
            '--max_bad_ratio',
            type=float,
            default=0.01,
            metavar='SHARE',
            help='share of rows that may be unusable (default: 0.01)',
        )
    return parser.parse_args(argv)


def _queries(files: list[str], prepared: str) -> list[Query]:
    """Return the queries of prepared files, which have the format of the set."""
    return [
        query
        for name in files
        for query in JsonlSource(format=prepared, test=name, dataset='against').load(
            'test', '.'
        )
    ]


def _print(report: preparing.Report) -> None:
    for split, total in report.rows.items():
        bad, repeated = report.unusable[split], report.repeated.get(split, 0)
        print(f'{split}: {total} rows, {len(bad)} unusable, {repeated} repeated')
        for line in bad[:5]:
            print(f'  {line}')
    for line in splits.describe_dropped(report.dropped):
        print(line)
    print(
        json.dumps(
            {
                'rows': dict(report.rows),
                'unusable': {s: len(bad) for s, bad in report.unusable.items()},
                'repeated': dict(report.repeated),
                'dropped': len(report.dropped),
                'written': dict(report.written),
            }
        )
    )


if __name__ == '__main__':
    sys.exit(main())
