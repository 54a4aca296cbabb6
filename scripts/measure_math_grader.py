"""Grade recorded pairs of answers and recorded solutions of models.

  python scripts/measure_math_grader.py DATA_DIR

DATA_DIR has `answer_equivalence.jsonl` (gold, prediction, expected; rows with `policy`
or `label_problem` are not in the core set) and `model_responses.jsonl` (gold, response,
the answer that another program extracted, expected). Prints one JSON object with every
disagreement; exits with 1 if less than 99 % of the core set agree.
"""

import argparse
import asyncio
import json
import pathlib
import statistics
import sys
import time
from typing import Any

from unimas_jax.tools import math_answers, math_grader
from unimas_jax.trace import Query


def main() -> int:
    """Grade and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('data_dir', type=pathlib.Path)
    folder = parser.parse_args().data_dir
    found = asyncio.run(measure(folder))
    print(json.dumps(found, ensure_ascii=False, indent=1))
    core = found['core']
    return 0 if core['agree'] >= 0.99 * core['pairs'] else 1


async def measure(folder: pathlib.Path) -> dict[str, Any]:
    """Return the counts of both files."""
    pairs = read(folder / 'answer_equivalence.jsonl')
    responses = read(folder / 'model_responses.jsonl')
    grader = math_grader.MathGrader(workers=1)
    await grader.start(str(folder))
    session = await grader.open(Query(id='', dataset='', fields={}, gold=''))
    core = [row for row in pairs if not row['policy'] and not row['label_problem']]
    policy = [row for row in pairs if row['policy'] or row['label_problem']]
    found = {
        'core': await grade_pairs(session, core),
        'choices_on_which_graders_differ': await grade_pairs(session, policy),
        'model_responses': await grade_responses(session, responses),
        'cpu_seconds_allowed': grader.cpu_seconds,
    }
    await grader.stop()
    return found


async def grade_pairs(session: Any, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how often the grader agrees, and how long it took."""
    differ, seconds, late = [], [], 0
    for row in rows:
        started = time.perf_counter()
        # A response without tag, box or announcement is an answer as it stands.
        answer = row['prediction']
        if row['kind'] == 'response':
            answer = math_answers.final_answer(answer) or answer
        grade = await session.call(gold=row['gold'], answer=answer)
        seconds.append(time.perf_counter() - started)
        late += grade.outcome == 'time_limit'
        if grade.is_correct != row['expected']:
            shown = {n: row[n] for n in ('id', 'gold', 'prediction', 'expected')}
            differ.append(shown | {'why': row['policy'] or row['label_problem']})
    return {
        'pairs': len(rows),
        'agree': len(rows) - len(differ),
        'ended_by_the_time_limit': late,
        'median_seconds': round(statistics.median(seconds), 4),
        'largest_seconds': round(max(seconds), 2),
        'differ': differ,
    }


async def grade_responses(session: Any, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how often extraction, and the grade of a whole response, agree."""
    extraction, grades = [], []
    for row in rows:
        answer = math_answers.final_answer(row['response'])
        same = await session.call(gold=str(row['extracted']), answer=answer or '')
        if not same.is_correct:
            extraction.append(
                {'id': row['id'], 'extracted': row['extracted'], 'ours': answer}
            )
        grade = await session.call(gold=row['gold'], reply=row['response'])
        if grade.is_correct != row['expected']:
            grades.append(
                {'id': row['id'], 'gold': row['gold'], 'ours': answer}
                | {'expected': row['expected']}
            )
    return {
        'responses': len(rows),
        'extraction_agrees': len(rows) - len(extraction),
        'grade_agrees': len(rows) - len(grades),
        'extraction_differs': extraction,
        'grade_differs': grades,
    }


def read(path: pathlib.Path) -> list[dict[str, Any]]:
    """Return the rows of a JSON Lines file."""
    return [json.loads(line) for line in path.read_text('utf-8').split('\n') if line]


if __name__ == '__main__':
    sys.exit(main())
