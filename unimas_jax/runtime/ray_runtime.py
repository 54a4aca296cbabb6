"""Models in worker processes, one on each host, started and watched by Ray.

Only plain specifications and messages cross: the driver runs the workflows, so workers
need no code of the user's. The processes belong to the driver's job and die with it.
"""

import asyncio
import dataclasses
import itertools
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Any

import ray
import ray.exceptions

from unimas_jax.controller.backend import WorkerLost
from unimas_jax.protocol import Demonstration, Reply, Request, Score
from unimas_jax.runtime import actors, cluster, placement
from unimas_jax.runtime.placement import HostGroup
from unimas_jax.specs import Experiment, ModelSpec, SftSpec
from unimas_jax.trace import Credit

COLLECT_SECONDS = 0.2
"""How long a collection waits for the first reply; bounds the delay of a stop."""

BLAME_SECONDS = 10.0
"""After an error in one process of a group, how long to wait for news of another."""


class RayRuntime:
    """A `controller.backend.Backend` of processes.

    Args:
        models: Specifications by name.
        roles: Roles by model name.
        frozen: Roles that are not trained on.
        seed: Of the run.
        num_hosts: Hosts to use; 0 takes as many as there are or, on CPU, as needed.
        cpu_devices: Devices of each process on CPU; 0 takes accelerators if any.
        rollout_dir: Where each step's rollouts are kept; empty keeps none.
        hook: Called in followers before each command; for tests.
    """

    def __init__(
        self,
        models: Mapping[str, ModelSpec],
        roles: Mapping[str, tuple[str, ...]],
        *,
        frozen: Sequence[str] = (),
        seed: int,
        num_hosts: int = 0,
        cpu_devices: int = 0,
        rollout_dir: str = '',
        hook: actors.Hook | None = None,
    ):
        self._models, self._roles, self._seed = dict(models), dict(roles), seed
        self._frozen = tuple(frozen)
        self._num_hosts, self._cpu_devices = num_hosts, cpu_devices
        self._rollout_dir = rollout_dir
        self._hook = hook
        self._groups: dict[str, _Group] = {}
        self._group_of: dict[str, str] = {}
        self._is_connected_here = False

    @classmethod
    def for_experiment(
        cls,
        experiment: Experiment,
        *,
        num_hosts: int = 0,
        cpu_devices: int = 0,
        rollout_dir: str = '',
    ) -> 'RayRuntime':
        """Return the runtime of an experiment whose `models` are filled in."""
        return cls(
            experiment.models,
            experiment.groups,
            # A warm start trains every role, frozen ones too.
            frozen=() if experiment.sft else experiment.frozen,
            seed=experiment.seed,
            num_hosts=num_hosts,
            cpu_devices=cpu_devices,
            rollout_dir=rollout_dir,
        )

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the host groups; after `start`."""
        return tuple(self._groups)

    def group_of(self, model: str) -> str:
        """Return the host group that holds a model; after `start`."""
        return self._group_of[model]

    async def start(self) -> dict[str, Any]:
        """Place the models and start every process.

        Raises:
            SpecError: The meshes do not fit the hosts.
            WorkerLost: A process died.
        """
        self._is_connected_here |= cluster.connect()
        meshes = {name: spec.mesh for name, spec in self._models.items()}
        platform, hosts = cluster.find_hosts(
            num_hosts=self._num_hosts,
            cpu_devices=self._cpu_devices,
            chips_needed=placement.hosts_needed(meshes, 1),
        )
        for place in placement.place(meshes, [host.chips for host in hosts]):
            options = [
                cluster.actor_options(platform, hosts, place, host)
                for host in place.hosts
            ]
            chips = [hosts[host].chips for host in place.hosts]
            self._groups[place.name] = _Group(
                place, options, self._members(place, chips)
            )
            self._group_of |= dict.fromkeys(place.chips, place.name)
        reports = await _all(group.start(self._hook) for group in self._groups.values())
        return {
            'programs': [program for r in reports for program in r['programs']],
            'devices': {m: d for r in reports for m, d in r['devices'].items()},
            'sharding_fallbacks': [x for r in reports for x in r['sharding_fallbacks']],
        }

    async def restart(self) -> None:
        """Kill every process and start anew."""
        self._kill()
        await self.start()

    async def submit(self, group: str, requests: Sequence[Request]) -> None:
        """Hand role calls to the group's leader."""
        await self._groups[group].call('submit', requests, lane='submit')

    async def collect(self, group: str) -> Sequence[Reply]:
        """Return the replies that are ready."""
        return await self._groups[group].call(
            'collect', COLLECT_SECONDS, lane='collect'
        )

    async def score(self, step: int) -> Sequence[Score]:
        """Score the rollouts that wait for credit."""
        return list(itertools.chain.from_iterable(await self._call('score', step)))

    async def commit(self, credits: Sequence[Credit]) -> Mapping[str, int]:
        """Deliver credits to the groups of their models."""
        counts = await _all(
            group.call('commit', [c for c in credits if c.model in group.models])
            for group in self._groups.values()
        )
        return {
            name: sum(count.get(name, 0) for count in counts)
            for name in dict.fromkeys(itertools.chain.from_iterable(counts))
        }

    async def update(self, step: int) -> Mapping[str, float]:
        """Train every group's models side by side and publish."""
        return _merged(await self._call('update', step))

    async def sft(
        self, demonstrations: Mapping[str, Sequence[Demonstration]], spec: SftSpec
    ) -> Mapping[str, float]:
        """Train on demonstrations and publish."""
        # Their source is the user's code, of which workers know nothing.
        spec = dataclasses.replace(spec, demonstrations=None)
        reports = await _all(
            group.call(
                'sft',
                {m: d for m, d in demonstrations.items() if m in group.models},
                spec,
            )
            for group in self._groups.values()
        )
        return _merged(reports)

    async def save(self, directory: str, step: int) -> None:
        """Write the state of every model."""
        await self._call('save', directory, step)

    async def restore(self, directory: str, step: int) -> None:
        """Read the state of every model."""
        await self._call('restore', directory, step)

    async def export(self, model: str, folder: str) -> Sequence[str]:
        """Write a model as Hugging Face folders; return them."""
        return await self._groups[self._group_of[model]].call('export', model, folder)

    async def clear(self, step: int) -> int:
        """Drop what an aborted step left."""
        return sum(await self._call('clear', step))

    async def stop(self) -> None:
        """End every process, and the cluster if it is ours."""
        self._kill()
        if self._is_connected_here:
            ray.shutdown()
            self._is_connected_here = False

    async def _call(self, name: str, *args: Any) -> list[Any]:
        """Call a method of every group's worker."""
        return await _all(group.call(name, *args) for group in self._groups.values())

    def _members(
        self, place: HostGroup, chips: Sequence[int]
    ) -> list[actors.Membership]:
        return [
            actors.Membership(
                rank=rank,
                size=len(place.hosts),
                chips_per_host=chips[rank],
                chips=place.chips,
                models={model: self._models[model] for model in place.chips},
                roles={model: self._roles[model] for model in place.chips},
                frozen=self._frozen,
                seed=self._seed,
                rollout_dir=self._rollout_dir,
            )
            for rank in range(len(place.hosts))
        ]

    def _kill(self) -> None:
        for group in self._groups.values():
            group.kill()
        self._groups.clear()


class _Group:
    """The processes of one host group."""

    def __init__(
        self,
        place: HostGroup,
        options: Sequence[Mapping[str, Any]],
        members: Sequence[actors.Membership],
    ):
        self.name, self.models = place.name, frozenset(place.chips)
        (leader_options, leader), *others = zip(options, members, strict=True)
        self._leader = actors.Leader.options(**leader_options).remote(leader)
        self._followers = [
            actors.Follower.options(**option).remote(member)
            for option, member in others
        ]
        self._processes = [self._leader, *self._followers]
        self._watch: asyncio.Future | None = None

    async def start(self, hook: actors.Hook | None) -> dict[str, Any]:
        """Join the processes, load weights and compile."""
        address = await self._result(self._leader.address.remote())
        await _all(self._result(p.join.remote(address)) for p in self._processes)
        starts = [self._leader.start.remote(self._followers)]
        starts += [follower.start.remote(hook) for follower in self._followers]
        report, *_ = await _all(self._result(start) for start in starts)
        if self._followers:
            watch = self._leader.watch.options(concurrency_group='watch').remote()
            self._watch = asyncio.ensure_future(_plain(watch))
            # It ends with the leader, which is no news when the leader was ended.
            self._watch.add_done_callback(lambda t: t.cancelled() or t.exception())
        return report

    async def call(self, name: str, *args: Any, lane: str = '') -> Any:
        """Call a method of the leader's worker.

        Args:
            name: Of the method.
            *args: Its arguments.
            lane: Calls of one lane wait for each other.

        Raises:
            WorkerLost: A process of the group failed.
        """
        method = self._leader.call
        if lane:
            method = method.options(concurrency_group=lane)
        return await self._result(method.remote(name, *args))

    def kill(self) -> None:
        """End the processes at once."""
        for process in self._processes:
            ray.kill(process, no_restart=True)

    async def _result(self, reference: ray.ObjectRef) -> Any:
        """Return what a process returned, unless another one fails first."""
        result = asyncio.ensure_future(_plain(reference))
        waiting = {result} if self._watch is None else {result, self._watch}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if not result.done():
            result.cancel()
            raise self._lost(await self._blame('its leader died'))
        try:
            return result.result()
        except ray.exceptions.RayActorError as error:
            first_line, *_ = str(error).splitlines()
            raise self._lost(await self._blame(first_line)) from error
        except ray.exceptions.RayTaskError as error:
            if error.cause.__class__.__name__ == 'DeviceFailure':
                # A collective fails because another process is gone, as a rule.
                blamed = await self._blame('')
                if blamed:
                    raise self._lost(blamed) from error
            raise error.cause from error

    async def _blame(self, otherwise: str) -> str:
        """Return what the watch says about other processes, if it says it soon."""
        if self._watch is None:
            return otherwise
        await asyncio.wait({self._watch}, timeout=BLAME_SECONDS)
        is_told = self._watch.done() and not self._watch.exception()
        return self._watch.result() if is_told else otherwise

    def _lost(self, reason: str) -> WorkerLost:
        """Kill what is left of the group and return the error to raise."""
        self.kill()
        return WorkerLost(f'host group {self.name!r}: {reason}')


async def _plain(reference: ray.ObjectRef) -> Any:
    """Await an object reference; as a coroutine it can be a task."""
    return await reference


async def _all(calls: Iterable[Awaitable[Any]]) -> list[Any]:
    return list(await asyncio.gather(*calls))


def _merged(reports: Iterable[Any]) -> dict[str, float]:
    return {name: value for r in reports for name, value in r.metrics.items()}
