"""The processes of a host group as Ray actors.

This module is loaded by the driver too, which must not load jax: actors import what
needs it when they are set up, in their own process. A follower has one thread, so that
it runs commands in the order in which the leader sent them.
"""

import collections
import contextlib
import dataclasses
import importlib
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import ray
import ray.exceptions

from unimas_jax.specs import ModelSpec
from unimas_jax.worker.commands import Command, CommandGap

PROBE_SECONDS = 1.0
"""Time between two looks at a follower."""

STUCK_SECONDS = 3600.0
"""A follower that is silent for longer has hung; a launch may take minutes."""

Hook = Callable[[int], bool]
"""Told the number of each command before a follower runs it; False skips it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Membership:
    """What a process of a host group is told.

    Attributes:
        rank: Of the process; 0 leads.
        size: Processes of the group.
        chips_per_host: Devices that the process should have.
        chips: Model to its chips, counted over the processes of the group.
        models: Specifications by name.
        roles: Roles by model name.
        frozen: Roles that are not trained on.
        seed: Of the run.
        rollout_dir: Where the leader keeps each step's rollouts; empty keeps none.
    """

    rank: int
    size: int
    chips_per_host: int
    chips: Mapping[str, tuple[int, ...]]
    models: Mapping[str, ModelSpec]
    roles: Mapping[str, tuple[str, ...]]
    frozen: tuple[str, ...]
    seed: int
    rollout_dir: str = ''


class _Process:
    """What leaders and followers share."""

    def __init__(self, membership: Membership):
        self._membership = membership

    def address(self) -> str:
        """Return an address and a free port of this host."""
        with socket.socket() as probe:
            probe.bind(('', 0))
            return f'{ray.util.get_node_ip_address()}:{probe.getsockname()[1]}'

    def join(self, coordinator: str) -> None:
        """Join the other processes of the group."""
        member = self._membership
        self._process = importlib.import_module('unimas_jax.runtime.process')
        self._process.join(
            coordinator, rank=member.rank, size=member.size, chips=member.chips_per_host
        )

    def _build(self, name: str, **fields: Any) -> Any:
        """Return a `Worker` or a `Follower` of this process."""
        member = self._membership
        module, name = name.split('.')
        module = importlib.import_module(f'unimas_jax.worker.{module}')
        return getattr(module, name)(
            member.models,
            seed=member.seed,
            roles=member.roles,
            frozen=member.frozen,
            devices=self._process.devices(member.chips),
            **fields,
        )

    @contextlib.contextmanager
    def _readable_errors(self) -> Iterator[None]:
        jax_errors = importlib.import_module('jax').errors
        try:
            yield
        except jax_errors.JaxRuntimeError as error:
            raise self._process.DeviceFailure(str(error)) from None


# As a mapping, since ray's own types leave this option out.
_LANES: dict[str, Any] = {'concurrency_groups': {'submit': 1, 'collect': 1, 'watch': 1}}


@ray.remote(num_cpus=0, **_LANES)
class Leader(_Process):
    """The process that decides; calls of different groups run side by side."""

    def start(self, followers: Sequence[Any]) -> dict[str, Any]:
        """Load weights and compile, together with the followers."""
        self._followers = tuple(followers)
        self._sent = -1
        self._runs: collections.deque = collections.deque()
        broadcast = self._broadcast if followers else None
        with self._readable_errors():
            self._worker = self._build(
                'worker.Worker',
                broadcast=broadcast,
                rollout_dir=self._membership.rollout_dir,
            )
            return self._worker.start()

    def call(self, name: str, *args: Any) -> Any:
        """Call a method of the worker."""
        with self._readable_errors():
            return getattr(self._worker, name)(*args)

    def watch(self) -> str:
        """Wait until a follower has failed; return what happened."""
        while True:
            sent = self._sent
            runs = [self._runs.popleft() for _ in range(len(self._runs))]
            # A check queues behind the commands that were sent before it.
            runs += [
                (rank, sent, follower.check.remote(sent))
                for rank, follower in enumerate(self._followers, start=1)
            ]
            for rank, number, run in runs:
                try:
                    ray.get(run, timeout=STUCK_SECONDS)
                except ray.exceptions.RayTaskError as error:
                    return f'process {rank} at command {number}: {error.cause}'
                except ray.exceptions.RayActorError:
                    return f'process {rank} died at command {number}'
                except ray.exceptions.GetTimeoutError:
                    return f'process {rank} hangs at command {number}'
            time.sleep(PROBE_SECONDS)

    def _broadcast(self, command: Command) -> None:
        for rank, follower in enumerate(self._followers, start=1):
            self._runs.append((rank, command.number, follower.execute.remote(command)))
        self._sent = command.number


@ray.remote(num_cpus=0)
class Follower(_Process):
    """A process that runs the leader's commands."""

    def start(self, hook: Hook | None) -> None:
        """Load weights and compile, together with the leader."""
        self._hook = hook
        self._next_number = 0
        with self._readable_errors():
            self._follower = self._build('follower.Follower')
            self._follower.start()

    def execute(self, command: Command) -> None:
        """Run a command."""
        if self._hook is not None and not self._hook(command.number):
            return
        with self._readable_errors():
            self._follower.execute(command)
        self._next_number = command.number + 1

    def check(self, sent: int) -> None:
        """Raise if a command is missing.

        Args:
            sent: Number of the last command that was sent before this call.

        Raises:
            CommandGap: It is not the last one that ran.
        """
        if self._next_number <= sent:
            raise CommandGap(f'command {self._next_number} was sent but never run.')
