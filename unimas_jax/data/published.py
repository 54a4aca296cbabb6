"""Published data sets: which files hold which split, and what becomes train, dev, test.

Patterns are relative to the folder of the published files or to the hub's repository;
of several, the first that matches anything is taken, so that a folder may hold the
files as the hub has them or as the authors published them.

A test set is the published one and whole. Where nothing is published to choose by, dev
is drawn from train. Sets without train are there to report on.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

PARAGRAPHS = 'paragraphs'
"""As `PublishedSet.corpus`: the paragraphs of the rows themselves."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublishedSet:
    """One published data set.

    Attributes:
        about: One line for the user.
        hub: Its repository on the hub.
        format: How its rows are read; a name in `rows.READERS`.
        prepared: How the rows that we write are read: qa, hotpotqa, code or math.
        files: Published split to patterns of its files.
        splits: Ours to the published ones that it is made of.
        held_out: Queries of train that become dev, where none is published.
        by_task_id: Whether one file holds all splits, divided by MBPP's task ids.
        corpus: Pattern of passages to retrieve from, or `PARAGRAPHS`; empty: none.
    """

    about: str
    hub: str
    format: str
    prepared: str
    files: Mapping[str, tuple[str, ...]]
    splits: Mapping[str, tuple[str, ...]]
    held_out: int = 0
    by_task_id: bool = False
    corpus: str = ''


_TEST: dict[str, Any] = {'splits': {'test': ('test',)}}
_TRAIN: dict[str, Any] = {'splits': {'train': ('train',)}, 'held_out': 500}
_BOTH: dict[str, Any] = {
    'splits': {'train': ('train',), 'test': ('test',)},
    'held_out': 500,
}

_QUESTIONS = {
    'hotpotqa': PublishedSet(
        about='HotpotQA, distractor setting; the published dev set is test',
        hub='hotpotqa/hotpot_qa',
        format='hotpotqa',
        prepared='hotpotqa',
        files={
            'train': (
                'distractor/train-*.parquet',
                'hotpot_train_v1*.json',
                'hotpotqa_train.jsonl',
            ),
            'test': (
                'distractor/validation-*.parquet',
                'hotpot_dev_distractor_v1.json',
                'hotpotqa_dev.jsonl',
            ),
        },
        corpus=PARAGRAPHS,
        **_BOTH,
    ),
    'nq': PublishedSet(
        about='Natural Questions, open; the published dev set is test',
        hub='google-research-datasets/nq_open',
        format='nq',
        prepared='qa',
        files={
            'train': (
                'nq_open/train-*.parquet',
                'NQ-open.train.jsonl',
                'nq_train.jsonl',
            ),
            'test': (
                'nq_open/validation-*.parquet',
                'NQ-open.dev.jsonl',
                'nq_dev.jsonl',
            ),
        },
        corpus='nq_corpus.jsonl',
        **_BOTH,
    ),
    'verl_qa': PublishedSet(
        about='questions in the form of verl, like those of Search-R1',
        hub='PeterJinGo/nq_hotpotqa_train',
        format='verl',
        prepared='qa',
        files={'train': ('train*.parquet',), 'test': ('test*.parquet',)},
        **_BOTH,
    ),
}

_CODE = {
    'deepcoder': PublishedSet(
        about='DeepCoder preview: TACO, PrimeIntellect, LiveCodeBench, Codeforces',
        hub='agentica-org/DeepCoder-Preview-Dataset',
        format='code',
        prepared='code',
        files={
            'taco': ('taco/train-*.parquet',),
            'primeintellect': ('primeintellect/train-*.parquet',),
            'lcbv5': ('lcbv5/train-*.parquet',),
            'lcbv5_test': ('lcbv5/test-*.parquet',),
            'codeforces': ('codeforces/test-*.parquet',),
        },
        splits={
            'train': ('taco', 'primeintellect', 'lcbv5'),
            'test': ('lcbv5_test', 'codeforces'),
        },
        held_out=500,
    ),
    'taco': PublishedSet(
        about='TACO',
        hub='BAAI/TACO',
        format='apps',
        prepared='code',
        files={
            'train': ('ALL/train-*.parquet', '*train*.parquet', '*train*.jsonl'),
            'test': ('ALL/test-*.parquet', '*test*.parquet', '*test*.jsonl'),
        },
        **_BOTH,
    ),
    'primeintellect': PublishedSet(
        about='verifiable coding problems of PrimeIntellect, those in Python',
        hub='PrimeIntellect/verifiable-coding-problems',
        format='primeintellect',
        prepared='code',
        files={'train': ('data/train-*.parquet', '*train*.jsonl')},
        **_TRAIN,
    ),
    'livecodebench': PublishedSet(
        about='LiveCodeBench, all releases',
        hub='livecodebench/code_generation_lite',
        format='livecodebench',
        prepared='code',
        files={'test': ('test*.jsonl',)},
        **_TEST,
    ),
    'apps': PublishedSet(
        about='APPS',
        hub='codeparrot/apps',
        format='apps',
        prepared='code',
        files={'train': ('train.jsonl',), 'test': ('test.jsonl',)},
        **_BOTH,
    ),
    'humaneval': PublishedSet(
        about='HumanEval',
        hub='openai/openai_humaneval',
        format='humaneval',
        prepared='code',
        files={
            'test': (
                'openai_humaneval/test-*.parquet',
                'HumanEval.jsonl.gz',
                'humaneval.jsonl',
            )
        },
        **_TEST,
    ),
    'mbpp': PublishedSet(
        about='MBPP, sanitized, divided by task ids as its authors do',
        hub='google-research-datasets/mbpp',
        format='mbpp',
        prepared='code',
        files={
            'all': (
                'sanitized/*.parquet',
                'sanitized-mbpp.json',
                'mbpp_sanitized.jsonl',
                'mbpp.jsonl',
            )
        },
        splits={'train': ('all',), 'dev': ('all',), 'test': ('all',)},
        by_task_id=True,
    ),
}

_MATH = {
    'dapo_math': PublishedSet(
        about='DAPO-Math-17k; its repeated rows are taken once',
        hub='BytedTsinghua-SIA/DAPO-Math-17k',
        format='verl_math',
        prepared='math',
        files={'train': ('data/*.parquet', 'dapo-math-17k.parquet')},
        **_TRAIN,
    ),
    'deepscaler': PublishedSet(
        about='DeepScaleR preview',
        hub='agentica-org/DeepScaleR-Preview-Dataset',
        format='math',
        prepared='math',
        files={'train': ('deepscaler.json',)},
        **_TRAIN,
    ),
    'gsm8k': PublishedSet(
        about='GSM8K',
        hub='openai/gsm8k',
        format='math',
        prepared='math',
        files={
            'train': ('main/train-*.parquet', 'train.jsonl', 'gsm8k_train.jsonl'),
            'test': ('main/test-*.parquet', 'test.jsonl', 'gsm8k_test.jsonl'),
        },
        **_BOTH,
    ),
    'math500': PublishedSet(
        about='MATH-500',
        hub='HuggingFaceH4/MATH-500',
        format='math',
        prepared='math',
        files={'test': ('test.jsonl', 'math500.jsonl')},
        **_TEST,
    ),
    'aime24': PublishedSet(
        about='AIME 2024, both papers',
        hub='HuggingFaceH4/aime_2024',
        format='math',
        prepared='math',
        files={'test': ('data/train-*.parquet', 'aime*24*.jsonl')},
        **_TEST,
    ),
    'aime25': PublishedSet(
        about='AIME 2025, both papers',
        hub='math-ai/aime25',
        format='math',
        prepared='math',
        files={'test': ('test.jsonl', 'aime*25*.jsonl')},
        **_TEST,
    ),
    'amc': PublishedSet(
        about='AMC 12 of 2022 and 2023',
        hub='AI-MO/aimo-validation-amc',
        format='math',
        prepared='math',
        files={'test': ('data/train-*.parquet', 'amc*.jsonl')},
        **_TEST,
    ),
}

SETS: Mapping[str, PublishedSet] = _QUESTIONS | _CODE | _MATH
