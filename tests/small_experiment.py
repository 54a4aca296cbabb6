"""A two-role workflow on ten questions, for tests of controller and runtimes."""

import dataclasses

from unimas_jax import specs
from unimas_jax.protocol import Demonstration, Segment, ServiceFailure
from unimas_jax.rewards import credit
from unimas_jax.trace import Query
from unimas_jax.workflows import formats


@dataclasses.dataclass(frozen=True, kw_only=True)
class Questions:
    """Ten questions for training, other five for dev and test each."""

    size: int = 10

    def load(self, split, data_dir):
        count = self.size if split == 'train' else 5
        where = '' if split == 'train' else f'{split}: '
        return [
            Query(
                id=f'{split}{i}',
                dataset='even' if i % 2 == 0 else 'odd',
                fields={'question': f'{where}what is {i}?'},
                gold=str(i),
            )
            for i in range(count)
        ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LookUp:
    """A tool that fails for the questions in `broken`."""

    broken: tuple[str, ...] = ()

    async def start(self, data_dir):
        """Nothing to load."""

    async def open(self, query):
        return self

    async def call(self, question):
        if question in self.broken:
            raise ServiceFailure(f'no connection for {question}')
        return f'about {question}'

    async def close(self):
        """Nothing is held."""

    async def stop(self):
        """Nothing to release."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneDemonstration:
    """One exchange for each role."""

    def load(self, data_dir, workflow):
        return [
            Demonstration(
                role=role.name,
                segments=(Segment(name='question', text='what?'),),
                text='7',
                prompt_tokens=8,
            )
            for role in workflow.roles
        ]


def value_of_answer(trace, leaf, turn):
    """A number in [0, 1) that depends on every letter: any metric will do."""
    return sum(map(ord, leaf.state.get('answer', ''))) % 10 / 10


def question_of(state):
    return {'question': state['question']}


def keep_fact(state, result):
    return {'fact': result}


def keep_draft(state, value):
    return {'draft': value}


def keep_answer(state, value):
    return {'answer': value}


def role(name, text, **fields):
    return specs.RoleSpec(
        name=name,
        prompt=(specs.Section(name='all', text=text),),
        format=formats.FreeText(),
        sampling=specs.Sampling(max_tokens=4, temperature=0.7),
        prompt_tokens=96,
        **fields,
    )


WORKFLOW = specs.WorkflowSpec(
    name='small',
    roles=(
        role('draft', 'Draft: {question} {fact}'),
        role('answer', 'Answer: {question} {draft}'),
    ),
    inputs=('question',),
    answer='answer',
    graph=specs.Graph(
        nodes=(
            specs.ToolNode(
                name='look',
                tool='look_up',
                reads=('question',),
                writes=('fact',),
                arguments=question_of,
                update=keep_fact,
                retries=0,
            ),
            specs.RoleNode(
                name='draft',
                role='draft',
                reads=('question', 'fact'),
                writes=('draft',),
                update=keep_draft,
            ),
            specs.RoleNode(
                name='answer',
                role='answer',
                reads=('question', 'draft'),
                writes=('answer',),
                update=keep_answer,
            ),
        ),
        edges=(
            specs.Edge(source='look', target='draft'),
            specs.Edge(source='draft', target='answer'),
        ),
        start='look',
    ),
)

# Scripted backends do not read it, but every model needs a specification.
MODEL = specs.ModelSpec(
    weights='random',
    architecture='tiny',
    tokenizer='none',
    context_tokens=128,
    optimizer=specs.OptimizerSpec(learning_rate=1e-3),
)

REWARD = specs.RewardSpec(
    parts={
        'draft': (specs.Outcome(metric=value_of_answer),),
        'answer': (specs.Outcome(metric=value_of_answer),),
    },
    score=value_of_answer,
)


def experiment(**changes):
    """Return the experiment: six steps of four queries with two samples each."""
    fields = dict(
        workflow=WORKFLOW,
        data=Questions(),
        reward=REWARD,
        credit=credit.Gae(),
        tools={'look_up': LookUp()},
        sharing='separate',
        model=MODEL,
        evaluation=specs.EvaluationSpec(every=3),
        num_steps=6,
        queries_per_step=4,
        samples_per_query=2,
        save_every=2,
        max_in_flight=5,
    )
    return specs.Experiment(**(fields | changes))
