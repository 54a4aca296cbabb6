"""Demonstrations for the supervised warm start, from a teacher that plays every role.

The workflow runs as in training, with the same engine, prompts and tools, and what the
teacher says becomes the reply to imitate. Prompts in the warm start are therefore those
of training. Replies that break their format are left out.
"""

import asyncio
import concurrent.futures
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from unimas_jax.protocol import Demonstration, Reply, Segment
from unimas_jax.specs import RoleSpec, WorkflowSpec, check_types, require
from unimas_jax.trace import Key, Query
from unimas_jax.workflows import engine

Teacher = Callable[[Query, str, tuple[Segment, ...], Key], str]
"""`(query, role name, prompt, key) -> text` of the reply; a pure function."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TeacherDemonstrations:
    """What a teacher says on queries of the training split.

    Attributes:
        data: Where queries come from; see `protocol.DataSource`.
        tools: Tools by name, as in the experiment.
        teacher: Plays every role; may use `Query.hints` and `Query.gold`.
        max_queries: Queries used, from the first; 0 uses all.
    """

    data: Any
    tools: Mapping[str, Any]
    teacher: Teacher
    max_queries: int = 0

    def __post_init__(self):
        check_types(self)
        require(
            self.max_queries >= 0,
            'TeacherDemonstrations.max_queries',
            self.max_queries,
            'use 0 (all) or more.',
        )

    def load(self, data_dir: str, workflow: WorkflowSpec) -> Sequence[Demonstration]:
        """Return the demonstrations, by query and then by invocation.

        Raises:
            SpecError: The data cannot be used, or no reply of the teacher is legal.
        """
        queries = self.data.load('train', data_dir)
        queries = queries[: self.max_queries or len(queries)]
        # The caller may already run an event loop, which a thread of its own avoids.
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            found = thread.submit(
                lambda: asyncio.run(self._play(queries, data_dir, workflow))
            ).result()
        require(
            bool(found),
            'TeacherDemonstrations.teacher',
            self.teacher,
            'none of its replies is legal.',
        )
        return found

    async def _play(
        self, queries: Sequence[Query], data_dir: str, workflow: WorkflowSpec
    ) -> list[Demonstration]:
        started = []
        try:
            for tool in self.tools.values():
                await tool.start(data_dir)
                started.append(tool)
            found = []
            for query in queries:
                found += await self._demonstrate(query, workflow)
            return found
        finally:
            for tool in started:
                await tool.stop()

    async def _demonstrate(
        self, query: Query, workflow: WorkflowSpec
    ) -> list[Demonstration]:
        said: dict[Key, Demonstration] = {}

        async def ask(
            key: Key,
            role: RoleSpec,
            segments: tuple[Segment, ...],
            continues: Key | None,
        ) -> Reply:
            text = self.teacher(query, role.name, segments, key)
            said[key] = Demonstration(
                role=role.name,
                segments=segments,
                text=text,
                prompt_tokens=role.prompt_tokens,
                thinking=role.sampling.thinking,
            )
            return Reply(key=key, step=0, text=text)

        trace = await engine.run(
            workflow,
            query,
            query_key=query.id,
            sample=0,
            ask=ask,
            tools=self.tools,
            model_of={},
        )
        return [
            said[i.key] for i in trace.invocations if i.status == 'ok' and i.key in said
        ]
