"""Compare our answer scores with recorded official ones.

  python scripts/measure_answer_scores.py FILE

FILE is JSON Lines with `prediction`, `gold` (a list), and the official `em` and `f1`,
which may be rounded to six digits. Prints one JSON line; exits with 1 on a difference.
"""

import argparse
import json
import pathlib
import sys

from unimas_jax.rewards import scores


def main() -> int:
    """Compare and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('file', type=pathlib.Path)
    path = parser.parse_args().file
    rows = [json.loads(line) for line in path.read_text('utf-8').split('\n') if line]
    exact = [scores.exact_match(r['prediction'], r['gold']) == r['em'] for r in rows]
    f1 = [
        round(scores.token_f1(r['prediction'], r['gold']), 6) == round(r['f1'], 6)
        for r in rows
    ]
    print(json.dumps({'rows': len(rows), 'em_equal': sum(exact), 'f1_equal': sum(f1)}))
    return 0 if rows and all(exact) and all(f1) else 1


if __name__ == '__main__':
    sys.exit(main())
