"""Print what the quickstart's runs reached; the last line is one JSON object.

python scripts/quickstart_summary.py runs/quickstart --seconds=500
"""

import argparse
import json
import pathlib

MAPPINGS = ('separate', 'full')
SCORE, LEGAL = 'eval/test/score', 'eval/test/legal/'
SCORE_LEGAL = 'eval/test/score_legal'


def main():
    """Read both runs' metrics and print test F1 before and after training."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('run_dir', type=pathlib.Path, help='holds a run per mapping')
    parser.add_argument('--seconds', type=int, required=True, help='that training took')
    args = parser.parse_args()
    result = {}
    for mapping in MAPPINGS:
        first, last = evaluations(args.run_dir / mapping / 'metrics.jsonl')
        result[mapping] = {'before': first[SCORE], 'after': last[SCORE]}
        print(
            f'{mapping}: test F1 {first[SCORE]:.3f} before, {last[SCORE]:.3f} after; '
            f'legal replies {legality(first)} before, {legality(last)} after; format '
            f'alone could have gained {first[SCORE_LEGAL] - first[SCORE]:.3f}'
        )
    result |= {'seconds': args.seconds, 'run_dir': str(args.run_dir)}
    print(json.dumps(result))


def evaluations(path: pathlib.Path) -> tuple[dict[str, float], dict[str, float]]:
    """Return the metrics of the first and of the last evaluation on test."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    evaluated = [line for line in lines if SCORE in line]
    if len(evaluated) < 2:
        raise SystemExit(f'{path}: the run has not ended; start it again.')
    return evaluated[0], evaluated[-1]


def legality(metrics: dict[str, float]) -> str:
    """Return the share of legal replies of every role."""
    shares = {
        name.removeprefix(LEGAL): value
        for name, value in metrics.items()
        if name.startswith(LEGAL)
    }
    return ', '.join(f'{role} {share:.3f}' for role, share in sorted(shares.items()))


if __name__ == '__main__':
    main()
