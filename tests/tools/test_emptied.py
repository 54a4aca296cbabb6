"""The control that throws results away still calls the tool."""

import asyncio

from unimas_jax.protocol import Passage
from unimas_jax.tools.bm25 import Bm25Retriever
from unimas_jax.tools.emptied import Emptied
from unimas_jax.trace import Query


class Corpus:
    """Two passages."""

    def passages(self, data_dir):
        return [Passage(title='a', text='one'), Passage(title='b', text='two')]


def test_an_emptied_tool_finds_nothing_where_its_tool_finds_something():
    tool = Bm25Retriever(corpus=Corpus(), top_k=1)
    query = Query(id='q', dataset='d', fields={}, gold='')

    async def search(tool):
        await tool.start('')
        session = await tool.open(query)
        found = await session.call(query='two')
        await session.close()
        await tool.stop()
        return found

    assert [passage.text for passage in asyncio.run(search(tool))] == ['two']
    assert asyncio.run(search(Emptied(tool=tool))) == ()
