"""Faults of experiments, each found before anything runs and said in one line."""

import dataclasses
import pickle

import flows
import pytest
from checked import experiment, metric, model, one_problem, problems_of

from unimas_jax import specs
from unimas_jax.tools import bm25, http_retriever
from unimas_jax.workflows import (
    formats,
    mask,
    qd_answer,
    qd_evidence_answer,
    qd_summarize_answer,
    rag_two_agent,
    rewrite_select_answer,
    single_agent,
    tool_formats,
)


@pytest.mark.parametrize('order', ['role_first', 'context_first'])
@pytest.mark.parametrize(
    'module',
    [
        mask,
        qd_answer,
        qd_evidence_answer,
        qd_summarize_answer,
        rag_two_agent,
        rewrite_select_answer,
        single_agent,
    ],
    ids=lambda module: module.__name__.rpartition('.')[2],
)
def test_built_in_workflows_have_no_fault(module, order):
    flow = module.build(prompt_tokens=64, response_tokens=64, prompt_order=order)
    assert problems_of(flow) == []
    assert pickle.loads(pickle.dumps(flow)) == flow


def test_an_unknown_role_is_named():
    flow = flows.workflow(
        flows.role_node('first'),
        flows.role_node('second', role='nobody'),
        roles=(flows.role('first'),),
    )
    assert one_problem(flow) == (
        "node 'second': no role 'nobody'; there are ['first']."
    )


def test_an_unused_role_is_named():
    flow = flows.workflow(
        flows.role_node('first'), roles=(flows.role('first'), flows.role('second'))
    )
    assert one_problem(flow).startswith("role 'second' is used by no node")


def look(**options):
    defaults = {
        'name': 'look',
        'tool': 'search',
        'reads': ('question',),
        'writes': ('found',),
        'arguments': lambda state: {'query': state['question']},
        'update': lambda state, result: {'found': result},
    }
    return specs.ToolNode(**(defaults | options))


def test_unknown_tools_are_named():
    caller = flows.role(
        'first',
        output=tool_formats.WithTools(
            answer=formats.Tag(name='a'),
            calls=(tool_formats.CallTag(name='s', tool='serch', argument='query'),),
        ),
        tools=('serch',),
        max_tool_calls=1,
    )
    flow = flows.workflow(flows.role_node('first'), look(tool='sarch'), roles=(caller,))
    assert problems_of(flow) == [
        "node 'look': no tool 'sarch'; there are ['retriever', 'search'].",
        "role 'first': no tool 'serch'; there are ['retriever', 'search'].",
    ]


def test_an_unreachable_node_is_named():
    flow = flows.workflow(
        flows.role_node('first'),
        flows.role_node('second'),
        edges=(specs.Edge(source='second', target='first'),),
    )
    assert one_problem(flow) == "node 'second' cannot be reached from 'first'."


def test_an_edge_behind_one_that_always_holds_is_named():
    flow = flows.workflow(
        flows.role_node('first'),
        flows.role_node('second'),
        flows.role_node('third'),
        edges=(
            specs.Edge(source='first', target='second'),
            specs.Edge(source='first', target='third'),
            specs.Edge(source='second', target='third'),
        ),
    )
    assert one_problem(flow).startswith("edge 'first' to 'third' is never taken")


def is_open(state):
    return not state['answer']


def test_a_loop_without_a_bound_is_named():
    edges = (
        specs.Edge(source='first', target='second'),
        specs.Edge(source='second', target='third', when=is_open),
        specs.Edge(source='third', target='first'),
    )
    nodes = [flows.role_node(name) for name in ('first', 'second', 'third')]
    assert one_problem(flows.workflow(*nodes, edges=edges)) == (
        "nodes ['first', 'second', 'third'] form a loop without a bound: mark the edge "
        'that leads back with next_turn=True.'
    )
    back = dataclasses.replace(edges[2], next_turn=True)
    flow = flows.workflow(*nodes, edges=(*edges[:2], back), max_turns=2)
    assert problems_of(flow) == []


def test_turns_without_an_edge_that_begins_them_are_named():
    flow = flows.workflow(flows.role_node('first'), max_turns=2)
    assert 'no edge has next_turn' in one_problem(flow)


def reads_note(**options):
    return flows.role_node(
        'second',
        reads=('note',),
        view=lambda state: {'question': state['note']},
        **options,
    )


def writes_note(name='first', **options):
    return flows.role_node(
        name, writes=('note',), update=lambda state, value: {'note': value}, **options
    )


def test_a_field_read_before_it_is_written_is_named():
    flow = flows.workflow(reads_note(), writes_note())
    assert "node 'second' reads 'note', which is not written on every" in (
        one_problem(flow)
    )
    assert problems_of(flows.workflow(writes_note(), reads_note())) == []


def test_a_field_that_nothing_writes_is_named():
    assert one_problem(flows.workflow(reads_note())) == (
        "node 'second' reads 'note', which nothing writes."
    )


def test_a_field_written_on_one_way_only_is_named():
    flow = flows.workflow(
        flows.role_node('start'),
        writes_note(),
        reads_note(),
        edges=(
            specs.Edge(source='start', target='first', when=is_open),
            specs.Edge(source='start', target='second'),
            specs.Edge(source='first', target='second'),
        ),
    )
    assert "node 'second' reads 'note'" in one_problem(flow)
    both = dataclasses.replace(flow, initial={'note': ''})
    assert problems_of(both) == []


def test_an_answer_missing_at_an_end_is_named():
    flow = flows.workflow(
        writes_note(),
        reads_note(),
        edges=(specs.Edge(source='first', target='second', when=has_note),),
    )
    assert "answer is 'answer', which has no value on every" in one_problem(flow)


def has_note(state):
    return bool(state['note'])


def grade_graph():
    node = look(
        name='grade',
        reads=('answer', 'gold'),
        writes=('grade',),
        arguments=lambda state: {'a': state['answer'], 'gold': state['gold']},
        update=lambda state, result: {'grade': 1.0},
    )
    return specs.Graph(start='grade', nodes=(node,))


def test_after_must_find_its_fields_on_early_ends_too():
    flow = flows.workflow(flows.role_node('first'), after=grade_graph())
    assert "node 'grade' reads 'answer', which is not written on" in one_problem(flow)
    node = flows.role_node('first', invalid=flows.no_answer)
    assert problems_of(flows.workflow(node, after=grade_graph())) == []


def test_gold_is_for_after_only():
    flow = flows.workflow(flows.role_node('first', reads=('question', 'gold')))
    assert "node 'first' reads 'gold', which only the after section sees." in (
        problems_of(flow)
    )


def map_flow(items, *, max_items=2, collect='found', answer=None):
    each = specs.Map(
        name='each',
        over='items',
        item='item',
        body=specs.Graph(
            start='look',
            nodes=(
                look(reads=('item',), arguments=lambda state: {'query': state['item']}),
            ),
        ),
        collect={'all_found': collect},
        max_items=max_items,
    )
    answer = answer or flows.role_node(
        'answer',
        reads=('all_found',),
        view=lambda state: {'question': state['all_found'][0][0].title},
    )
    return flows.workflow(
        each, answer, roles=(flows.role('answer'),), initial={'items': items}
    )


def test_maps_are_rehearsed():
    assert problems_of(map_flow(('a', 'b'))) == []
    assert "'items' may have 3 items, more than max_items=2" in (
        one_problem(map_flow(('a', 'b', 'c')))
    )
    assert "'items' is 'ab'; a Map runs over a list" in one_problem(map_flow('ab'))
    assert (
        "node 'each' collects 'fuond', which nothing writes"
        in (problems_of(map_flow(('a',), collect='fuond'))[0])
    )
    with pytest.raises(specs.SpecError, match='max_items'):
        map_flow(('a',), max_items=0)


def test_branches_that_write_one_field_are_named():
    branches = tuple(
        specs.Graph(start=name, nodes=(flows.role_node(name),))
        for name in ('first', 'second')
    )
    flow = flows.workflow(
        specs.Parallel(name='both', branches=branches),
        roles=(flows.role('first'), flows.role('second')),
    )
    assert one_problem(flow) == (
        "node 'both': two branches write ['answer']; rename a field."
    )


def boom(*arguments):
    raise ZeroDivisionError('boom')


@pytest.mark.parametrize(
    ('options', 'place'),
    [
        ({'view': boom}, "node 'first', view: ZeroDivisionError: boom"),
        ({'update': boom}, "node 'first', update: ZeroDivisionError: boom"),
        ({'invalid': boom}, "node 'first', invalid: ZeroDivisionError: boom"),
        ({'view': lambda s: 1}, "node 'first', view returned a int, not a mapping."),
        ({'update': lambda s, v: v}, 'update returned a str, not a mapping of fields.'),
        (
            {'update': lambda s, v: {'answer': v, 'b': 1}},
            "node 'first', update returned ['b'], which are not in writes.",
        ),
        (
            {'update': lambda s, v: {'answer': object()}},
            "node 'first', update: TypeError: a state cannot hold a object: use "
            'strings, numbers, tuples, mappings or frozen dataclasses.',
        ),
    ],
)
def test_functions_of_role_nodes_are_rehearsed(options, place):
    assert place in one_problem(flows.workflow(flows.role_node('first', **options)))


def test_functions_of_tool_nodes_are_rehearsed():
    after = flows.role_node('first')
    roles = (flows.role('first'),)
    for options, place in (
        ({'arguments': boom}, "node 'look', arguments: ZeroDivisionError: boom"),
        ({'update': boom}, "node 'look', update: ZeroDivisionError: boom"),
    ):
        assert one_problem(flows.workflow(look(**options), after, roles=roles)) == place


def test_predicates_are_rehearsed_whatever_way_is_taken():
    nodes = [flows.role_node(name) for name in ('first', 'second', 'third')]
    edges = (
        specs.Edge(source='first', target='second', when=is_open),
        specs.Edge(source='second', target='third', when=boom),
    )
    assert one_problem(flows.workflow(*nodes, edges=edges)) == (
        "edge 'second' to 'third', when: ZeroDivisionError: boom"
    )


def test_a_tool_without_a_sample_leaves_its_result_unknown():
    flow = flows.workflow(
        look(),
        flows.role_node(
            'first', reads=('found',), view=lambda s: {'question': s['found'][0].title}
        ),
    )
    assert problems_of(flow) == []
    assert problems_of(flow, tools={'search': flows.CountingTool()}) == []
    wrong = flows.workflow(look(), dataclasses.replace(flow.graph.nodes[1], view=boom))
    assert len(problems_of(wrong, tools={'search': flows.CountingTool()})) == 1


@pytest.mark.parametrize(
    'tool',
    [
        bm25.Bm25Retriever(corpus='corpus.jsonl'),
        http_retriever.HttpRetriever(urls=('http://localhost:1/retrieve',)),
    ],
)
def test_what_retrievers_find_is_rehearsed(tool):
    """Without starting them: there is neither a corpus nor a server."""
    shows_title = lambda s: {'question': s['found'][0].title}
    flow = flows.workflow(
        look(), flows.role_node('first', reads=('found',), view=shows_title)
    )
    assert problems_of(flow, tools={'search': tool}) == []
    wrong = lambda s: {'question': s['found'][0].heading}
    flow = flows.workflow(
        look(), flows.role_node('first', reads=('found',), view=wrong)
    )
    (problem,) = problems_of(flow, tools={'search': tool})
    assert "no attribute 'heading'" in problem


def test_a_template_whose_variable_is_not_read_is_named():
    flow = flows.workflow(
        flows.role_node('first'), roles=(flows.role('first', text='{question} {plan}'),)
    )
    problem = problems_of(flow)[0]
    assert problem == (
        "node 'first', role 'first', section 'all': the node does not read 'plan', "
        "only ['question']."
    )


def test_a_prompt_without_its_question_is_named():
    """A peer's planner was never shown the question it planned for."""
    flow = flows.workflow(
        flows.role_node('first'), roles=(flows.role('first', text='Plan.'),)
    )
    assert one_problem(flow).startswith(
        "node 'first' reads ['question'], which neither"
    )
    viewed = flows.role_node('first', view=lambda s: {'question': s['question']})
    flow = flows.workflow(viewed, roles=(flows.role('first', text='Plan.'),))
    assert "view returns ['question'], which no section" in one_problem(flow)


@pytest.mark.parametrize('text', ['{question', '{question!r}', '{question.x} ', '}'])
def test_a_template_with_stray_braces_is_named(text):
    flow = flows.workflow(
        flows.role_node('first'), roles=(flows.role('first', text=text),)
    )
    assert one_problem(flow).startswith("role 'first', section 'all': ")


def test_a_variable_that_is_no_text_is_named():
    node = flows.role_node('first', view=lambda state: {'question': (1, 2)})
    assert "variable 'question' is a tuple: render it" in (
        one_problem(flows.workflow(node))
    )


def test_a_prompt_that_does_not_fit_its_model_is_named():
    flow = flows.workflow(flows.role_node('first'))
    assert problems_of(flow, model=model(context_tokens=80)) == []
    assert one_problem(flow, model=model(context_tokens=79)) == (
        "role 'first': a prompt of 64 and replies of 16 tokens exceed "
        "context_tokens=79 of model 'shared'."
    )


def test_meshes_that_share_some_chips_are_named():
    flow = flows.workflow(writes_note(), reads_note())

    def placed(first, second):
        def mesh(chip):
            return model(mesh=specs.MeshSpec(tensor=2, first_chip=chip))

        models = {'first': mesh(first), 'second': mesh(second)}
        return problems_of(flow, sharing='separate', models=models)

    assert placed(0, 2) == placed(0, 0) == []
    assert placed(0, 1) == [
        "models 'first' and 'second' share some of their chips, 0 to 1 and 1 to 2: "
        'give them the same chips, or none in common.'
    ]


def test_a_mesh_that_does_not_divide_is_refused():
    with pytest.raises(specs.SpecError, match='multiple of data . fsdp = 3'):
        model(mesh=specs.MeshSpec(data=3))


def test_a_trainable_role_without_reward_is_refused():
    flow = flows.workflow(writes_note(), reads_note())
    reward = specs.RewardSpec(
        parts={'first': (specs.Outcome(metric=metric),)}, score=metric
    )
    with pytest.raises(specs.SpecError, match="'second' has no reward"):
        experiment(flow, reward=reward)
    assert problems_of(flow, reward=reward, frozen=('second',)) == []


def test_a_query_without_the_inputs_is_named():
    flow = flows.workflow(flows.role_node('first'), inputs=('question', 'context'))
    assert "the query has only ['question']" in problems_of(flow)[-1]


def test_a_run_function_is_checked_for_roles_and_tools():
    async def run(query, ask, tool):
        return {}

    flow = specs.WorkflowSpec(
        name='program',
        roles=(flows.role('first', text='{x'),),
        inputs=('question',),
        answer='answer',
        run=run,
    )
    assert one_problem(flow).startswith("role 'first', section 'all'")
