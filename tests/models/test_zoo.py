"""Named architectures have the published number of weights."""

import json
import pathlib

import pytest

from unimas_jax.models import transformer, zoo
from unimas_jax.specs import SpecError

COUNTS = json.loads(
    (pathlib.Path(__file__).parents[1] / 'golden' / 'param_counts.json').read_text()
)


@pytest.mark.parametrize('name', zoo.CONFIGS)
def test_parameter_count_equals_that_of_transformers(name):
    assert transformer.num_params(zoo.config(name)) == COUNTS[name]


def test_an_unknown_name_is_reported_with_the_known_ones():
    with pytest.raises(SpecError, match="architecture is 'gpt9': use one of tiny"):
        zoo.config('gpt9')
