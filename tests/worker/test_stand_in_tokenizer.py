"""The stand-in counts like a tokenizer, loses no character and cuts like one."""

import pytest

from unimas_jax.protocol import Segment
from unimas_jax.worker.prompt_tokens import PromptUnfit
from unimas_jax.worker.stand_in_tokenizer import StandInTokenizer


def section(text, **fields):
    return Segment(name=fields.pop('name', 'all'), text=text, **fields)


@pytest.mark.parametrize(
    ('text', 'count'),
    [
        ('The answer', 3),  # The| ans|wer
        ('in 1994.', 6),  # in| 1|9|9|4|.
        ('{"a": "ü"}', 10),
        ('a\n\nb', 3),  # a|\n|\nb
        ('', 0),
    ],
)
def test_tokens_are_short_pieces_and_give_the_text_back(text, count):
    tokenizer = StandInTokenizer()
    ids = tokenizer.reply(text)
    assert len(ids) == count + 1 and ids[-1] == tokenizer.stop_ids[0]
    assert tokenizer.decode(ids) == text


def test_messages_stand_between_marks():
    tokenizer = StandInTokenizer()
    sections = [section('a', speaker='system'), section('b'), section('c')]
    # <begin> system \n a <end>, <begin> user \n b c <end>, <begin> assistant \n
    assert len(tokenizer.prompt(sections, limit=99).ids) == 5 + 6 + 3


def test_prompts_are_cut_by_priority():
    tokenizer = StandInTokenizer()
    sections = [section('rule'), section('1 2 3', name='found', priority=0)]
    whole = len(tokenizer.prompt(sections, limit=99).ids)
    prompt = tokenizer.prompt(sections, limit=whole - 2)
    assert (len(prompt.ids), prompt.cuts) == (whole - 2, (('found', 2),))
    with pytest.raises(PromptUnfit, match='everything cut that may be'):
        tokenizer.prompt(sections, limit=whole - 4)
