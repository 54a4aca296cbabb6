"""Golden cases of the question-answering workflows."""

from golden_traces import Case

from unimas_jax import protocol
from unimas_jax.rewards import presets, scores
from unimas_jax.trace import Query
from unimas_jax.workflows import qd_answer

QUERY = Query(
    id='7',
    dataset='made_up',
    fields={'question': 'Who was born first, Ada or Bob?'},
    gold=('Ada Byron',),
)


def passages(query):
    """Return two passages for any search, the title being the search."""
    return tuple(
        protocol.Passage(
            title=query, text=f'fact {i}', id=f'{query}-{i}', score=2.0 - i
        )
        for i in range(2)
    )


def answer(text):
    return f'<final_answer>{text}</final_answer>'


QD_ANSWER = {
    'workflow': qd_answer.build(max_sub_queries=2, top_k=2, response_tokens=16),
    'reward': presets.shared_outcome(('decompose', 'answer'), scores.TokenF1()),
    'query': QUERY,
    'tools': {'retriever': passages},
}

CASES = {
    ('qd_answer', 'good'): Case(
        replies={
            'decompose': '{"sub_queries": ["Ada born", "Bob born"]}',
            'answer': answer('Ada'),
        },
        **QD_ANSWER,
    ),
    ('qd_answer', 'decompose_illegal'): Case(
        replies={'decompose': '{"sub_queries": "Ada"}', 'answer': answer('Ada')},
        **QD_ANSWER,
    ),
    ('qd_answer', 'answer_illegal'): Case(
        replies={'decompose': '{"sub_queries": ["Ada"]}', 'answer': 'Ada'},
        **QD_ANSWER,
    ),
    ('qd_answer', 'answer_truncated'): Case(
        replies={
            'decompose': '{"sub_queries": ["Ada"]}',
            'answer': 'well ' * 16 + answer('Ada'),
        },
        **QD_ANSWER,
    ),
}
