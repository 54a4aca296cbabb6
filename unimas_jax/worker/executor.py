"""The one thread of a process that launches device work.

Invariants:
  - Every device program of every model of the process is launched from this thread, in
    the order of the command numbers, which is the same on all processes of the group.
  - Only the launch happens here. Waiting for a result happens on the thread that wants
    it, so that models on different chips compute at the same time.
"""

import concurrent.futures
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import jax
import numpy as np

from unimas_jax.worker.commands import Argument, Command, CommandGap

Outputs = dict[str, jax.Array]
"""Results of a program by name, still being computed."""


class Runnable(Protocol):
    """What the executor needs of a `device.DeviceModel`."""

    def run(self, name: str, args: Mapping[str, Argument]) -> Outputs:
        """Launch the entry `name` of the model's table."""
        ...


class Executor:
    """Runs commands in order, on one thread.

    Args:
        models: The models of this process by name.
        broadcast: Hands a command to the other processes of the group; None when there
            are none. Called on the launching thread, before the command runs here.
    """

    def __init__(
        self,
        models: Mapping[str, Runnable],
        *,
        broadcast: Callable[[Command], None] | None = None,
    ):
        self._models = models
        self._broadcast = broadcast
        self._next_number = 0
        self._thread = concurrent.futures.ThreadPoolExecutor(
            max_workers=1, thread_name_prefix='launch'
        )

    def submit(
        self, model: str, name: str, args: Mapping[str, Argument]
    ) -> concurrent.futures.Future[Outputs]:
        """On the leader: number a command, send it to the followers and launch it.

        Args:
            model: The model.
            name: Entry of the model's table.
            args: Its arguments.

        Returns:
            A future of the outputs; it is done when the launch is, and `fetch` waits
            for the values.
        """
        return self._thread.submit(self._lead, model, name, args)

    def launch(
        self, model: str, name: str, args: Mapping[str, Argument]
    ) -> dict[str, np.ndarray]:
        """`submit`, then wait for the values."""
        return fetch(self.submit(model, name, args).result())

    def execute(self, command: Command) -> None:
        """On a follower: launch the leader's next command.

        Raises:
            CommandGap: The command is not the next one.
        """
        self._thread.submit(self.run, command).result()

    def call(self, function: Callable[[], Any]) -> Any:
        """Run `function`, which launches programs, on the launching thread."""
        return self._thread.submit(function).result()

    def run(self, command: Command) -> Outputs:
        """Launch a command; called on the launching thread.

        Raises:
            CommandGap: The command is not the next one.
        """
        if command.number != self._next_number:
            raise CommandGap(
                f'expected command {self._next_number} but saw {command.number} '
                f'({command.model}/{command.name}): the host group has diverged.'
            )
        self._next_number += 1
        return self._models[command.model].run(command.name, command.args)

    def stop(self) -> None:
        """Finish what was submitted and end the thread."""
        self._thread.shutdown(wait=True)

    def _lead(self, model: str, name: str, args: Mapping[str, Argument]) -> Outputs:
        command = Command(number=self._next_number, model=model, name=name, args=args)
        if self._broadcast is not None:
            self._broadcast(command)
        return self.run(command)


def fetch(outputs: Outputs) -> dict[str, np.ndarray]:
    """Wait for outputs and copy them to the host."""
    return jax.device_get(outputs)
