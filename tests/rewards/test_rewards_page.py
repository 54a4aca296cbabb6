"""`docs/rewards.md` names every rule and part, and its code runs."""

import pathlib
import re

import made_traces
import pytest
from crediting import run

from unimas_jax import specs
from unimas_jax.rewards import catalog, parts

PAGE = (pathlib.Path(__file__).parents[2] / 'docs' / 'rewards.md').read_text()
BLOCKS = re.findall(r'```python\n(.*?)```', PAGE, re.DOTALL)


@pytest.mark.parametrize('name', catalog.RULES)
def test_the_table_has_every_rule(name):
    assert f'\n| `{name}` | ' in PAGE


def test_every_rule_of_the_table_exists():
    rows = re.findall(r'^\| `(\w+)` \| .* \| .* \| .* \|$', PAGE, re.MULTILINE)
    assert set(rows) == set(catalog.RULES)
    for text in re.findall(r'specs.Experiment.credit = "(.*)"', PAGE):
        catalog.parse(text)
    for text in re.findall(r'--rule "?(\w+(?:\([^)]*\))?)"?', PAGE):
        assert text == 'gin' or catalog.parse(text)


@pytest.mark.parametrize('part', [*(kind.__name__ for kind in parts._NAMES), 'Custom'])
def test_the_table_has_every_part(part):
    assert f'\n| `{part}(' in PAGE


def test_the_rule_of_the_page_runs():
    (code,) = [block for block in BLOCKS if 'class OnlyTheBest' in block]
    names = {'__name__': 'my_rules'}
    exec(code, names)
    credits = run(names['OnlyTheBest'](), made_traces.four_samples())
    found = {(c.key.sample, c.advantage) for c in credits}
    assert found == {(0, 1.0), (1, 0.0), (2, 0.0), (3, 1.0)}


def test_the_judge_of_the_page_is_a_workflow():
    (code,) = [block for block in BLOCKS if 'JUDGE = ' in block]
    names = {'__name__': 'my_judge'}
    exec(code, names)
    assert names['keep_grade']({}, 7.5) == {'grade': 0.75}
    assert names['JUDGE'].format.parse('<grade>8</grade>') == 8.0
    assert isinstance(names['AFTER'], specs.Graph)
