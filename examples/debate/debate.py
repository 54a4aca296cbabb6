"""Three roles settle a sum: one proposes, one criticises, one decides.

propose -> compare (a tool: is the proposal too low?) -> criticise -> decide
"""

import dataclasses
import random

from unimas_jax import protocol, specs
from unimas_jax.trace import Query
from unimas_jax.workflows import formats, prompts, updates

NUMBER = formats.Tag(name='answer', kind='int')
ADVICE = formats.Tag(name='advice', max_words=20)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sums:
    """Data source: sums of two numbers below 100, other ones for each split."""

    size: int

    def load(self, split, data_dir):
        """Return the questions of a split."""
        draw = random.Random(split)
        pairs = [(draw.randrange(100), draw.randrange(100)) for _ in range(self.size)]
        texts = [{'question': f'{a} + {b}'} for a, b in pairs]
        return [
            Query(id=f'{split}{i}', dataset='sums', fields=texts[i], gold=sum(pair))
            for i, pair in enumerate(pairs)
        ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compare(protocol.StatelessTool):
    """Tool: says whether a number is too low, too high or right."""

    async def call(self, question, answer):
        """Return the verdict."""
        wrong = answer - sum(int(number) for number in question.split(' + '))
        return 'right' if wrong == 0 else 'too low' if wrong < 0 else 'too high'


class Closeness:
    """Metric: 1 for the right answer, less the further it is off."""

    def __call__(self, trace, leaf, turn):
        """Return the score after a turn, in (0, 1]."""
        answer = trace.value_after('answer', leaf.fork, turn)
        return 1 / (1 + abs(answer - trace.query.gold))


def build(*, prompt_tokens: int, response_tokens: int) -> specs.WorkflowSpec:
    """Return the workflow; it needs the tool `compare`."""
    roles, nodes = [], []
    for name, told, reads, writes, output in (
        ('propose', 'Guess the sum.', ('question',), 'answer', NUMBER),
        ('criticise', 'Advise.', ('question', 'answer', 'verdict'), 'advice', ADVICE),
        ('decide', 'Solve.', ('question', 'answer', 'advice'), 'answer', NUMBER),
    ):
        prompt = prompts.arrange(told, output, prompts.show(*reads))
        sampling = specs.Sampling(max_tokens=response_tokens)
        speaker = dict(prompt=prompt, sampling=sampling, prompt_tokens=prompt_tokens)
        functions = dict(update=updates.Keep(writes), invalid=updates.Put())
        roles.append(specs.RoleSpec(name=name, format=output, **speaker))
        fields = dict(reads=reads, writes=(writes,))
        nodes.append(specs.RoleNode(name=name, role=name, **fields, **functions))
    asked = updates.Take({'question': 'question', 'answer': 'answer'})
    functions = dict(arguments=asked, update=updates.Keep('verdict'))
    fields = dict(reads=('question', 'answer'), writes=('verdict',))
    compare = specs.ToolNode(name='compare', tool='compare', **fields, **functions)
    return specs.WorkflowSpec(
        name='debate',
        roles=tuple(roles),
        inputs=('question',),
        initial={'answer': 0, 'advice': 'none'},
        answer='answer',
        graph=specs.chain(nodes[0], compare, *nodes[1:]),
    )
