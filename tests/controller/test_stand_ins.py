"""Data and tools that are missing are replaced where that is allowed, and named."""

import asyncio
import dataclasses

import pytest
import small_experiment

from unimas_jax import specs
from unimas_jax.controller import stand_ins
from unimas_jax.trace import Query


@dataclasses.dataclass(frozen=True, kw_only=True)
class Absent:
    """A data source or tool whose file is missing."""

    stopped: list = dataclasses.field(default_factory=list)

    def load(self, split, data_dir):
        raise specs.SpecError(f'{data_dir}/rows.jsonl: no such file.')

    async def start(self, data_dir):
        raise specs.SpecError(f'{data_dir}/corpus.jsonl: no such file.')

    async def stop(self):
        self.stopped.append(True)


class Known(Absent):
    """One that says what it would give."""

    def sample(self):
        return Query(id='own', dataset='d', fields={'question': '?'}, gold='42')


def test_data_that_are_there_are_taken():
    queries, lines = stand_ins.queries(small_experiment.experiment(), None)
    assert (len(queries), queries[0].id, lines) == (10, 'train0', [])


def test_missing_data_are_made_up_unless_a_folder_is_named():
    whole = small_experiment.experiment(data=Absent())
    queries, lines = stand_ins.queries(whole, None)
    assert len({query.id for query in queries}) == stand_ins.MADE_UP_QUERIES
    assert queries[0].fields == {'question': 'A sample question.'}
    assert lines == [
        'made-up queries, since without --data_dir: ./rows.jsonl: no such file.'
    ]
    with pytest.raises(specs.SpecError, match='^data/rows.jsonl: no such file.$'):
        stand_ins.queries(whole, 'data')


def test_a_source_may_say_what_its_queries_look_like():
    queries, _ = stand_ins.queries(small_experiment.experiment(data=Known()), None)
    assert {query.gold for query in queries} == {'42'}


def started(tools, data_dir):
    async def run():
        async with stand_ins.started_tools(tools, data_dir) as (running, lines):
            results = {}
            for name, tool in running.items():
                session = await tool.open(None)
                results[name] = await session.call(question='x')
            return results, lines

    return asyncio.run(run())


def test_a_tool_that_cannot_start_gives_its_sample():
    known = Known()
    tools = {'look_up': small_experiment.LookUp(), 'find': known}
    results, lines = started(tools, None)
    assert results['look_up'] == 'about x' and results['find'].gold == '42'
    assert lines == [
        "sample results of tool 'find', since: ./corpus.jsonl: no such file."
    ]
    assert known.stopped == []  # It never started.


@pytest.mark.parametrize(('tool', 'data_dir'), [(Absent(), None), (Known(), 'data')])
def test_a_tool_without_a_sample_or_with_a_folder_must_start(tool, data_dir):
    with pytest.raises(specs.SpecError, match='corpus.jsonl'):
        started({'find': tool}, data_dir)
