"""A control: a tool whose results are thrown away.

A workflow whose score survives this tool did not need what the tool finds.
"""

import dataclasses
from typing import Any

from unimas_jax.protocol import Session
from unimas_jax.trace import Query


@dataclasses.dataclass(frozen=True, kw_only=True)
class Emptied:
    """Calls another tool and answers with nothing, `()`.

    Attributes:
        tool: The tool that is really called, with all its costs and failures.
    """

    tool: Any

    async def start(self, data_dir: str) -> None:
        """Start the tool."""
        await self.tool.start(data_dir)

    async def open(self, query: Query) -> '_EmptiedSession':
        """Open a session of the tool."""
        return _EmptiedSession(await self.tool.open(query))

    async def stop(self) -> None:
        """Stop the tool."""
        await self.tool.stop()


class _EmptiedSession:
    def __init__(self, session: Session):
        self._session = session

    async def call(self, **arguments: Any) -> tuple[()]:
        """Call the tool; return nothing of what it finds."""
        await self._session.call(**arguments)
        return ()

    async def close(self) -> None:
        """Close the session."""
        await self._session.close()
