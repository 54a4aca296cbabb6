"""Golden cases of the question-answering workflows: good ways, malformed replies."""

from golden_traces import Case

from unimas_jax import protocol
from unimas_jax.rewards import presets, scores
from unimas_jax.rewards.best_of import Agreement, BestOf
from unimas_jax.specs import RewardSpec
from unimas_jax.trace import Query
from unimas_jax.workflows import (
    mask,
    qd_answer,
    qd_evidence_answer,
    qd_summarize_answer,
    rag_two_agent,
    rewrite_select_answer,
    single_agent,
)

QUERY = Query(
    id='7',
    dataset='made_up',
    fields={'question': 'Who was born first, Ada or Bob?'},
    gold=('Ada Byron',),
)
F1 = scores.TokenF1()


def one_passage(query):
    """Return a passage whose title is the search."""
    return (protocol.Passage(title=query, text='a fact'),)


def three_passages(query):
    """Return passages as plain texts."""
    return tuple(f'{query} {number}' for number in 'abc')


def no_server(query):
    """Fail as a retriever does whose server is down."""
    raise protocol.ServiceFailure('no server')


def final(text):
    return f'<final_answer>{text}</final_answer>'


def sub_queries(*texts):
    return '{"sub_queries": ["' + '", "'.join(texts) + '"]}'


def cases(name, workflow, reward, *, tool=one_passage, **replies_of):
    """Return the cases of a workflow, by name and the replies of each."""
    return {
        (name, case): Case(
            workflow=workflow,
            reward=reward,
            query=QUERY,
            replies=replies,
            tools={'retriever': tool},
        )
        for case, replies in replies_of.items()
    }


QD_ANSWER = cases(
    'qd_answer',
    qd_answer.build(max_sub_queries=2, top_k=1, response_tokens=16),
    presets.shared_outcome(('decompose', 'answer'), F1),
    good={'decompose': sub_queries('Ada', 'Bob'), 'answer': final('Ada')},
    decompose_illegal={
        'decompose': '{"sub_queries": "Ada, Bob"}',
        'answer': final('Ada'),
    },
    decompose_too_many={'decompose': sub_queries(*'abc'), 'answer': final('Ada')},
    answer_illegal={'decompose': sub_queries('Ada'), 'answer': 'Ada'},
    answer_truncated={
        'decompose': sub_queries('Ada'),
        'answer': 'well ' * 16 + final('Ada'),
    },
)

QD_EVIDENCE_ANSWER = cases(
    'qd_evidence_answer',
    qd_evidence_answer.build(max_sub_queries=2, top_k=1, response_tokens=16),
    presets.shared_outcome(('decompose', 'evidence', 'answer'), F1),
    good={
        'decompose': sub_queries('Ada', 'Bob'),
        'evidence#0': '<sub_evidence>Ada: 1815</sub_evidence>',
        'evidence#1': '<sub_evidence>Bob: 1900</sub_evidence>',
        'answer': final('Ada'),
    },
    decompose_illegal={'decompose': 'Ada and Bob', 'answer': final('Ada')},
    evidence_illegal={
        'decompose': sub_queries('Ada', 'Bob'),
        'evidence#0': 'Ada: 1815',
        'evidence#1': '<sub_evidence>Bob: 1900</sub_evidence>',
        'answer': final('Bob'),
    },
    answer_illegal={
        'decompose': sub_queries('Ada'),
        'evidence': '<sub_evidence>Ada: 1815</sub_evidence>',
        'answer': final('Ada') + final('Bob'),
    },
)

QD_SUMMARIZE_ANSWER = cases(
    'qd_summarize_answer',
    qd_summarize_answer.build(max_sub_queries=3, top_k=1, response_tokens=16),
    presets.shared_outcome(('decompose', 'summarize', 'answer'), F1),
    good={
        'decompose': sub_queries('Ada', 'Bob'),
        'summarize': '{"sub_answers": ["1815", "1900"]}',
        'answer': final('Ada Byron'),
    },
    decompose_illegal={'decompose': '{"sub_queries": []}', 'answer': final('Ada')},
    summarize_illegal={
        'decompose': sub_queries('Ada', 'Bob'),
        'summarize': '{"sub_answers": "1815, 1900"}',
        'answer': final('Ada'),
    },
    summarize_one_too_few={
        'decompose': sub_queries('Ada', 'Bob'),
        'summarize': '{"sub_answers": ["1815"]}',
        'answer': final('Ada'),
    },
    answer_illegal={
        'decompose': sub_queries('Ada'),
        'summarize': '{"sub_answers": ["1815"]}',
        'answer': '<final_answer>Ada',
    },
)

REWRITE_SELECT_ANSWER = cases(
    'rewrite_select_answer',
    rewrite_select_answer.build(top_k=5, response_tokens=16),
    presets.shared_outcome(('rewrite', 'select', 'answer'), F1),
    tool=three_passages,
    good={
        'rewrite': '<rewrite_query>Ada Bob born</rewrite_query>',
        'select': '<selected_docs>3, 1</selected_docs>',
        'answer': final('Ada'),
    },
    rewrite_illegal={
        'rewrite': 'Ada Bob born',
        'select': '<selected_docs>2</selected_docs>',
        'answer': final('Ada'),
    },
    select_none={
        'rewrite': '<rewrite_query>Ada</rewrite_query>',
        'select': '<selected_docs>none</selected_docs>',
        'answer': final('Ada'),
    },
    select_illegal={
        'rewrite': '<rewrite_query>Ada</rewrite_query>',
        'select': '<selected_docs>the first</selected_docs>',
        'answer': final('Ada'),
    },
    select_beyond_the_found={
        'rewrite': '<rewrite_query>Ada</rewrite_query>',
        'select': '<selected_docs>1, 4</selected_docs>',
        'answer': final('Ada'),
    },
    answer_illegal={
        'rewrite': '<rewrite_query>Ada</rewrite_query>',
        'select': '<selected_docs>1</selected_docs>',
        'answer': '<answer>Ada</answer>',
    },
)

RAG_TWO_AGENT = cases(
    'rag_two_agent',
    rag_two_agent.build(top_k=1, response_tokens=16),
    presets.shared_outcome(('search', 'answer'), scores.ExactMatch()),
    good={
        'search': '{"query": "Ada"}',
        'answer': '{"answer": "Ada Byron", "enough": true}',
    },
    good_with_a_second_search={
        'search@0': '{"query": "Ada"}',
        'answer@0': '{"answer": "Ada Byron", "enough": false}',
        'search@1': '{"query": "Bob"}',
        'answer@1': '{"answer": "Bob", "enough": false}',
    },
    search_illegal={
        'search': '{"query": ["Ada"]}',
        'answer': '{"answer": "Ada", "enough": true}',
    },
    second_search_illegal={
        'search@0': '{"query": "Ada"}',
        'answer': '{"answer": "Ada Byron", "enough": false}',
        'search@1': 'Bob',
    },
    answer_illegal={
        'search': '{"query": "Ada"}',
        'answer': '{"answer": "Ada", "enough": "no"}',
    },
)

PLANNED = '<q1>When is Ada?</q1><a1>1800</a1><q2>When is Bob?</q2><a2>1900</a2>'
MASK_REPLIES = {
    'plan': PLANNED + final('Ada'),
    'answer@0': final('Bob'),
    'search@1': '<search>Ada born</search>',
    'summary@1': '<evidence>Ada was born in 1815.</evidence>',
    'update@1': '<update>t1</update>',
    'answer@1': final('Ada'),
    'search@2': '<search>Ada name</search>',
    'summary@2': '<evidence>Ada Byron</evidence>',
    'update@2': '<add>t3</add>',
    'answer@2': final('Ada Byron'),
    'search@3': '<end>',
}


def mask_replies(**changed):
    """Return the replies of the good way up to the end of turn 1, with changes."""
    kept = {n: text for n, text in MASK_REPLIES.items() if n[-1] not in '23'}
    changed = {name.replace('_', '@'): text for name, text in changed.items()}
    return kept | {'search@2': '<end>'} | changed


MASK_REWARD = presets.marginal_turns(
    F1,
    absolute=('answer',),
    marginal=('search', 'summary', 'update'),
    own_answers={'plan': 'planned_answer'},
)
MASK = cases(
    'mask',
    mask.build(top_k=1),
    MASK_REWARD,
    good=MASK_REPLIES,
    all_turns={
        **{n: text for n, text in MASK_REPLIES.items() if n != 'search@3'},
        'search@3': '<search>Bob</search>',
        'summary@3': '<evidence>nothing useful</evidence>',
        'update@3': '<update>t2</update>',
        'answer@3': final('Bob'),
    },
    end_at_once={
        'plan': PLANNED + final('Bob'),
        'answer': final('Ada'),
        'search': 'That is all. <end>',
    },
    plan_illegal=mask_replies(
        plan='<q1>When is Ada?</q1>' + final('Ada'), update_1='<add>t1</add>'
    ),
    plan_too_long=mask_replies(
        plan=''.join(f'<q{i}>q</q{i}><a{i}>a</a{i}>' for i in range(1, 7)) + final('x'),
        update_1='<add>t1</add>',
    ),
    search_illegal={
        'plan': PLANNED + final('Ada'),
        'answer': final('Ada'),
        'search': '<search>Ada</search> or <end>',
    },
    summary_illegal=mask_replies(
        summary_1='<evidence>' + 'very ' * 76 + '</evidence>', update_1='<add>t3</add>'
    ),
    update_illegal=mask_replies(update_1='<update>first</update>'),
    update_of_no_step=mask_replies(update_1='<update>t3</update>'),
    add_of_another_than_the_next=mask_replies(update_1='<add>t4</add>'),
    answer_illegal=mask_replies(answer_1='Ada'),
)
MASK_FAILED = cases(
    'mask',
    mask.build(top_k=1),
    MASK_REWARD,
    tool=no_server,
    retriever_failed={
        'plan': PLANNED + final('Ada'),
        'answer': final('Ada'),
        'search': '<search>Ada</search>',
    },
)

SINGLE_REWARD = presets.shared_outcome(('agent',), F1)
SINGLE_AGENT = cases(
    'single_agent',
    single_agent.build(top_k=1, max_sub_queries=2, response_tokens=16),
    SINGLE_REWARD,
    good={'solve': sub_queries('Ada', 'Bob'), 'go_on': final('Ada')},
    answers_at_once={'solve': final('Ada Byron')},
    two_rounds={
        'solve': sub_queries('Ada'),
        'go_on@0': sub_queries('Bob'),
        'go_on@1': final('Ada Byron'),
    },
    search_when_none_is_left={
        'solve': sub_queries('Ada'),
        'go_on@0': sub_queries('Bob'),
        'go_on@1': sub_queries('Cy'),
    },
    both={'solve': sub_queries('Ada') + final('Ada')},
    neither={'solve': 'Ada'},
)
MATCHED_BUDGET = cases(
    'single_agent',
    single_agent.build(top_k=1, max_rounds=1, attempts=3),
    RewardSpec(parts=SINGLE_REWARD.parts, score=BestOf(metric=F1, by=Agreement())),
    three_attempts={
        'solve^0': final('Bob'),
        'solve^1': sub_queries('Ada'),
        'go_on^1': final('Ada'),
        'solve^2': final('Ada Byron'),
    },
)

CASES = {
    **QD_ANSWER,
    **QD_EVIDENCE_ANSWER,
    **QD_SUMMARIZE_ANSWER,
    **REWRITE_SELECT_ANSWER,
    **RAG_TWO_AGENT,
    **MASK,
    **MASK_FAILED,
    **SINGLE_AGENT,
    **MATCHED_BUDGET,
}
