"""A process that only executes what the leader of its group decides."""

from collections.abc import Mapping, Sequence
from typing import Any

from unimas_jax.models.sharding import Device
from unimas_jax.specs import ModelSpec
from unimas_jax.worker.commands import Command
from unimas_jax.worker.host import Host


class Follower:
    """The models of a process that is not the leader of its host group.

    Args:
        models: As for `worker.Worker`; so are the others.
        seed: Of the run.
        roles: Roles by model.
        frozen: Roles that are not trained on.
        devices: Chips by model.
    """

    def __init__(
        self,
        models: Mapping[str, ModelSpec],
        *,
        seed: int,
        roles: Mapping[str, Sequence[str]],
        frozen: Sequence[str] = (),
        devices: Mapping[str, Sequence[Device]] | None = None,
    ):
        self._host = Host(
            models, roles=roles, frozen=frozen, seed=seed, devices=devices
        )

    def start(self) -> dict[str, Any]:
        """Load weights and compile; see `host.Host.start`."""
        return self._host.start()

    def execute(self, command: Command) -> None:
        """Launch the leader's next command.

        Raises:
            CommandGap: It is not the next one.
        """
        self._host.executor.execute(command)

    def stop(self) -> None:
        """End the launching thread."""
        self._host.executor.stop()
