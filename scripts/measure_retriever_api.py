"""Read recorded answers of retrieval servers; each is understood, or refused clearly.

    python scripts/measure_retriever_api.py DATA_DIR

DATA_DIR holds `api_samples.jsonl`: `server`, `variant`, `request`, `status` and
`response`. Each goes through `retrieval_api.parse` for as many queries as its request
has; one whose status is not 200 must be refused, with the reason that its body gives.
Prints a line for each sample and one JSON object; exits with 1 where an answer raises
anything but an `AnswerError` of one line, or where an error is taken for passages.
"""

import argparse
import collections
import json
import pathlib
import sys
from typing import Any

from unimas_jax.tools import retrieval_api


def main() -> int:
    """Read the samples, print, and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('data_dir', type=pathlib.Path)
    path = parser.parse_args().data_dir / 'api_samples.jsonl'
    lines = [line for line in path.read_text('utf-8').split('\n') if line]
    counts: collections.Counter[str] = collections.Counter()
    for sample in map(json.loads, lines):
        kind, what = read(sample)
        counts[kind] += 1
        print(f'{sample["id"]} {sample["server"]} {sample["variant"]}: {kind}: {what}')
    print(json.dumps({'samples': len(lines), **counts}))
    return 1 if counts['wrong'] or not lines else 0


def read(sample: dict[str, Any]) -> tuple[str, str]:
    """Return `understood`, `refused` or `wrong`, and what was found or said."""
    try:
        found = retrieval_api.parse(sample['response'], num_queries(sample['request']))
    except retrieval_api.AnswerError as error:
        reason = str(error)
        return ('wrong' if '\n' in reason or not reason else 'refused'), reason
    if sample['status'] != 200:
        return 'wrong', f'status {sample["status"]} was read as passages'
    passages = [passage for result in found for passage in result]
    if not all(passage.text for passage in passages):
        return 'wrong', 'a passage without text'
    return 'understood', f'{len(found)} queries, {len(passages)} passages'


def num_queries(request: Any) -> int:
    """Return how many queries a request has; one that is malformed counts as one."""
    if not isinstance(request, dict):
        return 1
    for name in ('queries', 'questions', 'query'):
        if isinstance(request.get(name), list):
            return len(request[name])
    return 1


if __name__ == '__main__':
    sys.exit(main())
