"""What stands in for data and services that are not at hand, in checks and dry runs.

Nothing is replaced in silence: every stand-in comes with a line that says what for.
"""

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from unimas_jax.controller.session import load
from unimas_jax.protocol import StatelessTool
from unimas_jax.specs import Experiment, SpecError
from unimas_jax.trace import Query

MADE_UP_QUERIES = 8


def queries(
    experiment: Experiment, data_dir: str | None
) -> tuple[Sequence[Query], list[str]]:
    """Return the training split, or made-up queries.

    Args:
        experiment: Names the data; all its splits are read.
        data_dir: Folder to which relative paths refer. None takes the current folder,
            and makes up queries where the data are not in it.

    Returns:
        At least one query, and lines for the user.

    Raises:
        SpecError: `data_dir` is given, and the data cannot be used.
    """
    try:
        found, lines = load(experiment, ('train', 'dev', 'test'), data_dir or '.')
        return found['train'], lines
    except SpecError as missing:
        if data_dir is not None:
            raise
        made_up = sample_query(experiment)
        return [
            dataclasses.replace(made_up, id=f'made_up_{number}')
            for number in range(MADE_UP_QUERIES)
        ], [f'made-up queries, since without --data_dir: {missing}']


def sample_query(experiment: Experiment) -> Query:
    """Return what a query looks like: the data source's sample, or plain texts."""
    sample = getattr(experiment.data, 'sample', None)
    if sample is not None:
        return sample()
    fields = {name: f'A sample {name}.' for name in experiment.workflow.inputs}
    return Query(id='made_up', dataset='made_up', fields=fields, gold=('sample',))


@contextlib.asynccontextmanager
async def started_tools(
    tools: Mapping[str, Any], data_dir: str | None
) -> AsyncIterator[tuple[Mapping[str, Any], list[str]]]:
    """Start tools; stop them at the end, whatever happens.

    Args:
        tools: By name.
        data_dir: Folder to which relative paths refer. None takes the current folder,
            and a sample of its results for a tool that cannot start.

    Yields:
        Started tools by name, and a line for each that is replaced.

    Raises:
        SpecError: A tool cannot start, and `data_dir` is given or it has no sample.
    """
    running, lines = {}, []
    async with contextlib.AsyncExitStack() as cleanup:
        for name, tool in tools.items():
            try:
                await tool.start(data_dir or '.')
            except SpecError as missing:
                if data_dir is not None or not hasattr(tool, 'sample'):
                    raise
                running[name] = SampleTool(tool.sample())
                lines.append(f'sample results of tool {name!r}, since: {missing}')
            else:
                running[name] = tool
                cleanup.push_async_callback(tool.stop)
        yield running, lines


class SampleTool(StatelessTool):
    """Gives the same result for every call."""

    def __init__(self, result: Any):
        self._result = result

    async def call(self, **arguments: Any) -> Any:
        """Return the sample result."""
        return self._result
