"""One row of every format, for checks and dry runs without the data."""

from collections.abc import Mapping

from unimas_jax.data import rows
from unimas_jax.data.row_fields import Row
from unimas_jax.trace import Query

_QUESTION = 'Which of Ada and Bob was born first?'
_PARAGRAPHS = [['Ada', ['Ada was born in 1815.']], ['Bob', ['Bob was born in 1900.']]]
_SUM = 'What is 1 + 2?'
_DOUBLE = 'Read a whole number and print its double.'
_CASES = [{'input': f'{n}\n', 'output': f'{2 * n}\n'} for n in range(4)]
_ADD = 'def add(a, b):\n'

SAMPLES: Mapping[str, Row] = {
    'qa': {'question': _QUESTION, 'answer': 'Ada'},
    'hotpotqa': {'question': _QUESTION, 'answer': 'Ada', 'context': _PARAGRAPHS},
    'nq': {'question': _QUESTION, 'answers': ['Ada']},
    'verl': {'question': _QUESTION, 'golden_answers': ['Ada']},
    'math': {'problem': _SUM, 'answer': '3'},
    'verl_math': {
        'prompt': [{'role': 'user', 'content': _SUM}],
        'reward_model': {'ground_truth': '3'},
    },
    'code': {'problem': _DOUBLE, 'tests': _CASES},
    'apps': {'question': _DOUBLE, 'input_output': _CASES},
    'primeintellect': {
        'prompt': _DOUBLE,
        'verification_info': {'test_cases': _CASES},
    },
    'livecodebench': {
        'question_content': _DOUBLE,
        'public_test_cases': _CASES[:1],
        'private_test_cases': _CASES[1:],
    },
    'humaneval': {
        'prompt': f'{_ADD}    """Return the sum of two numbers."""\n',
        'entry_point': 'add',
        'test': 'def check(candidate):\n    assert candidate(1, 2) == 3\n',
    },
    'mbpp': {
        'prompt': 'Write a function that adds two numbers.',
        'code': f'{_ADD}    return a + b\n',
        'test_list': ['assert add(1, 2) == 3', 'assert add(0, 0) == 0'],
    },
}


def sample(format: str) -> Query:
    """Return what a query of a format looks like.

    Args:
        format: A name in `rows.READERS`.
    """
    return rows.read(SAMPLES[format], format, dataset='sample', default_id='sample')
