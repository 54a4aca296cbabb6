"""Try the output formats on real model outputs and on generated replies.

    python scripts/measure_parsers.py DATA_DIR

DATA_DIR holds `transcripts.jsonl` (`protocol`, `text`) and `parse_cases.jsonl` (`kind`,
`text`, `expected`). Three things are counted:

  - every format against its reference of `tests/workflows/reference_formats.py` on all
    texts, by protocol and kind: an exception other than `FormatError`, a value of
    another type, or another opinion about what is legal is a disagreement;
  - the same for generated replies, GENERATED of them over all formats;
  - what other projects expect of their own parsers for the kinds that one of our
    formats can express. Where we refuse on purpose what they repair or take in part,
    the rule is named.

Prints one line for each protocol or kind and one JSON object; exits with 1 on a
disagreement with a reference, or on one with another project that no rule explains.
"""

import argparse
import collections
import itertools
import json
import pathlib
import random
import sys
from typing import Any

ROOT = pathlib.Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / 'tests' / 'workflows')]

import reference_formats  # noqa: E402 - found through the path that is set above

from unimas_jax.workflows import formats, tool_formats  # noqa: E402
from unimas_jax.workflows.parsing import FormatError  # noqa: E402

THINK_ANSWER = formats.Tag(name='answer')
FIELDS = formats.Tags(names=('reasoning', 'answer'))
CALLS = tool_formats.WithTools(
    answer=formats.FreeText(),
    calls=(
        tool_formats.CallTag(name='search', tool='search', argument='query'),
        tool_formats.CallTag(name='code', tool='code', argument='script'),
    ),
)
REAL = {
    'answer': reference_formats.Subject(
        read=THINK_ANSWER.parse,
        reference=lambda text: reference_formats.tag(text, 'answer'),
        seeds=(),
    ),
    'search_or_answer': reference_formats.Subject(
        read=formats.OneOf(tags=('search', 'answer')).parse,
        reference=lambda text: reference_formats.one_of(text, ('search', 'answer'), ()),
        seeds=(),
    ),
}
"""Formats with the tags that real outputs have."""

SCALARS = {str: 'str', bool: 'bool', int: 'int', float: 'float'}


def main() -> int:
    """Count, print, and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('data_dir', type=pathlib.Path)
    parser.add_argument('--generated', type=int, default=100_000)
    args = parser.parse_args()
    transcripts = rows_of(args.data_dir / 'transcripts.jsonl')
    cases = rows_of(args.data_dir / 'parse_cases.jsonl')
    wrong = real_outputs(transcripts, 'protocol') + real_outputs(cases, 'kind')
    generated_wrong = generated(args.generated)
    expected, unexplained = expectations(cases)
    for line in wrong + generated_wrong + unexplained:
        print(line[:300], file=sys.stderr)
    result = {
        'real_texts': len(transcripts) + len(cases),
        'formats': len(reference_formats.SUBJECTS | REAL),
        'real_disagreements': len(wrong),
        'generated': args.generated,
        'generated_disagreements': len(generated_wrong),
        'expected_by_others': expected,
        'unexplained': len(unexplained),
    }
    print(json.dumps(result))
    return 1 if wrong or generated_wrong or unexplained else 0


def rows_of(path: pathlib.Path) -> list[dict[str, Any]]:
    """Return the rows of a JSON Lines file."""
    return [json.loads(line) for line in path.read_text('utf-8').split('\n') if line]


def real_outputs(rows: list[dict[str, Any]], group: str) -> list[str]:
    """Read every text with every format; return the disagreements."""
    wrong, counts = [], collections.defaultdict(collections.Counter)
    for row in rows:
        for name, subject in (reference_formats.SUBJECTS | REAL).items():
            counts[row[group]]['read'] += 1
            if difference := subject.disagreement(row['text']):
                wrong.append(f'{row["id"]} {name}: {difference}')
            elif subject.reference(row['text']) is not reference_formats.ILLEGAL:
                counts[row[group]]['legal'] += 1
        counts[row[group]]['texts'] += 1
    for name, count in sorted(counts.items()):
        print(
            f'{group} {name[:60]}: {count["texts"]} texts, {count["read"]} readings, '
            f'{count["legal"]} legal'
        )
    return wrong


def generated(count: int) -> list[str]:
    """Compare formats and references on generated replies; return disagreements."""
    wrong = []
    share = -(-count // len(reference_formats.SUBJECTS))
    for name, subject in reference_formats.SUBJECTS.items():
        draw = random.Random(f'measure {name}')
        texts = reference_formats.altered(subject.seeds, draw)
        legal = 0
        for text in itertools.islice(texts, share):
            if difference := subject.disagreement(text):
                wrong.append(f'{name}: {difference}')
            legal += subject.reference(text) is not reference_formats.ILLEGAL
        print(f'generated {name}: {share} replies, {legal} legal')
    return wrong


def expectations(cases: list[dict[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """Compare with what other projects expect of the kinds that we can express.

    Returns:
        For each kind, how many are equal, and how many differ by which rule of ours;
        and those that no rule explains.
    """
    counts, unexplained = collections.defaultdict(collections.Counter), []
    for case in cases:
        opinion = OPINIONS.get(case['kind'], _json)(case)
        if opinion is None:
            continue
        counts[case['kind']][opinion] += 1
        if opinion == 'unexplained':
            unexplained.append(f'{case["id"]}: {case["text"]!r} {case["expected"]}')
    for kind, count in sorted(counts.items()):
        print(f'expected {kind}: {dict(count)}')
    return {kind: dict(count) for kind, count in counts.items()}, unexplained


def _value(output: Any, text: str) -> Any:
    try:
        return output.parse(text)
    except FormatError:
        return None


def _think_answer(case: dict[str, Any]) -> str:
    legal = _value(THINK_ANSWER, case['text']) is not None
    return 'equal' if legal == case['expected']['well_formed'] else 'unexplained'


def _strip_think(case: dict[str, Any]) -> str:
    text, expected = case['text'], case['expected']['text']
    found = _value(formats.FreeText(), text)
    if case.get('variant') == 'boxed extractor' and '\\boxed' in text:
        return 'boxed answers are for the grader'
    if '<think>' not in text:
        return 'a reply need not think'
    if text.count('<think>') > 1:
        return 'a second block is illegal' if found is None else 'unexplained'
    return 'equal' if found == expected else 'unexplained'


def _fields(case: dict[str, Any]) -> str:
    found, expected = _value(FIELDS, case['text']), case['expected']
    if 'fields' not in expected:
        return 'a tag given twice is illegal' if found is None else 'unexplained'
    if not all(expected['fields'].values()):
        return 'each tag must hold something' if found is None else 'unexplained'
    return 'equal' if found == expected['fields'] else 'unexplained'


def _tool_calls(case: dict[str, Any]) -> str | None:
    text, expected = case['text'], case['expected']
    if '<call_tool' in text:
        return None
    try:
        found = CALLS.tool_call(text)
    except FormatError:
        found = 'illegal'
    calls = expected.get('calls', {})
    if expected['n_calls'] > 1:
        return 'a reply makes one call' if found == 'illegal' else 'unexplained'
    if '<search>' in text and '</search>' not in text:
        return 'an unclosed tag is illegal' if found == 'illegal' else 'unexplained'
    if not calls:
        return 'equal' if found is None else 'unexplained'
    if '' in calls['0']['args'].values():
        return 'an empty call is illegal' if found == 'illegal' else 'unexplained'
    arguments = found.arguments if isinstance(found, tuple) else None
    return 'equal' if arguments == calls['0']['args'] else 'unexplained'


def _json(case: dict[str, Any]) -> str | None:
    """Compare objects of named, plain values; ours reads what JSON itself does."""
    expected = case['expected'].get('value') if 'expected' in case else None
    if not isinstance(expected, dict) or not expected:
        return None
    if any(type(value) not in SCALARS for value in expected.values()):
        return None
    keys = {name: SCALARS[type(value)] for name, value in expected.items()}
    found = _value(formats.JsonObject(keys=keys), case['text'])
    if found == expected:
        return 'equal'
    if found is not None:
        return 'unexplained'
    if reference_formats.json_object(case['text']) != expected:
        return 'not JSON with these keys and kinds: illegal, not repaired'
    has_empty = '' in expected.values()
    return 'each value must hold something' if has_empty else 'unexplained'


OPINIONS = {
    'format_think_answer': _think_answer,
    'strip_think_strict': _strip_think,
    'strip_think_lenient': _strip_think,
    'xml_fields': _fields,
    'tag_tool_calls': _tool_calls,
}

if __name__ == '__main__':
    sys.exit(main())
