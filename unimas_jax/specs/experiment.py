"""One experiment: everything that a run needs to know, as plain data."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from unimas_jax.specs.checks import check_types, require
from unimas_jax.specs.learning import SftSpec
from unimas_jax.specs.models import EndpointSpec, ModelSpec, RoleMapping, groups_of
from unimas_jax.specs.rewards import Metric, RewardSpec
from unimas_jax.specs.workflow import WorkflowSpec


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationSpec:
    """How a policy is judged.

    Attributes:
        every: Training steps between evaluations on dev; 0 evaluates at the end only.
        max_queries: Queries of dev and test that are used; 0 uses all.
        samples: Samples of each query.
        temperature: Of every role; 0 is greedy.
        metrics: Further metrics by name, beside the score of `RewardSpec`.
        before: Evaluate before the first step as well.
    """

    every: int = 50
    max_queries: int = 0
    samples: int = 1
    temperature: float = 0.0
    metrics: Mapping[str, Metric] = dataclasses.field(default_factory=dict)
    before: bool = True

    def __post_init__(self):
        check_types(self)
        require(self.every >= 0, 'EvaluationSpec.every', self.every, 'use 0 or more.')
        require(
            self.samples >= 1, 'EvaluationSpec.samples', self.samples, 'use 1 or more.'
        )
        require(
            self.temperature > 0 or (self.temperature == 0 and self.samples == 1),
            'EvaluationSpec.temperature',
            self.temperature,
            'use 0 or more, and more than 0 for several samples, which are all the '
            'same when they are greedy.',
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment:
    """A complete multi-agent workflow, its models, rewards and data.

    Attributes:
        workflow: What runs for each sample of a query; `roles` is applied to it.
        data: Object with `load(split, data_dir)` that returns a random-access sequence
            of `Query`, for the splits `train`, `dev` and `test`.
        tools: Tool objects by the name that the workflow uses.
        reward: What each trainable role earns.
        credit: Rule that turns traces into credits, see `rewards.rule`; in a gin file
            also a text like "Rloo", see `rewards.catalog`.
        sharing: `full`, `separate`, or groups of roles by model name.
        model: The base specification, from which each model is made.
        models: Specifications by model name. The configuration fills them in from
            `model` and the overrides of `<name>/ModelSpec`.
        roles: For some roles, what differs from the workflow's own settings: fields of
            `Sampling`, or `prompt_tokens`.
        frozen: Roles that a model plays without being trained on.
        endpoints: Roles played by an endpoint instead of a model.
        sft: Supervised warm start, run by `unimas sft` and before training from
            scratch; None skips it.
        evaluation: How the policy is judged.
        num_steps: Training steps.
        queries_per_step: Queries of one step.
        samples_per_query: Samples of each query.
        max_in_flight: Workflow samples that run at once.
        save_every: Steps between checkpoints.
        keep_checkpoints: Checkpoints kept; older ones are deleted.
        max_failure_ratio: Share of a step's samples that may fail by infrastructure.
        seed: Of data order, sampling and initialization.
    """

    workflow: WorkflowSpec
    data: Any
    reward: RewardSpec
    credit: Any
    num_steps: int
    queries_per_step: int
    model: ModelSpec | None = None
    tools: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    sharing: Any = 'full'
    models: Mapping[str, ModelSpec] = dataclasses.field(default_factory=dict)
    roles: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    frozen: tuple[str, ...] = ()
    endpoints: Mapping[str, EndpointSpec] = dataclasses.field(default_factory=dict)
    sft: SftSpec | None = None
    evaluation: EvaluationSpec = EvaluationSpec()
    samples_per_query: int = 1
    max_in_flight: int = 1024
    save_every: int = 50
    keep_checkpoints: int = 2
    max_failure_ratio: float = 0.1
    seed: int = 0

    def __post_init__(self):
        check_types(self)
        for name in (
            'num_steps',
            'queries_per_step',
            'samples_per_query',
            'max_in_flight',
            'save_every',
            'keep_checkpoints',
        ):
            value = getattr(self, name)
            require(value >= 1, f'Experiment.{name}', value, 'use 1 or more.')
        roles = [role.name for role in self.workflow.roles]
        for where, names in (
            ('roles', self.roles),
            ('frozen', self.frozen),
            ('endpoints', self.endpoints),
            ('reward.parts', self.reward.parts),
        ):
            for name in names:
                require(
                    name in roles,
                    f'Experiment.{where}',
                    name,
                    f'no such role; the workflow has {roles}.',
                )
        # Applied here, and again without effect to copies of this experiment.
        object.__setattr__(self, 'workflow', self._workflow_with_roles())
        groups = self.groups
        for name in self.models:
            require(
                name in groups,
                'Experiment.models',
                name,
                f'the mapping uses the models {list(groups)}.',
            )
        for role in roles:
            require(
                not self.mapping.is_trainable(role) or role in self.reward.parts,
                'Experiment.reward.parts',
                sorted(self.reward.parts),
                f'trainable role {role!r} has no reward; add parts, or freeze it.',
            )

    def _workflow_with_roles(self) -> WorkflowSpec:
        roles = [
            role.changed(self.roles.get(role.name, {})) for role in self.workflow.roles
        ]
        return dataclasses.replace(self.workflow, roles=tuple(roles))

    @property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """Model name to the roles it plays."""
        roles = [r.name for r in self.workflow.roles if r.name not in self.endpoints]
        return groups_of(self.sharing, roles)

    @property
    def mapping(self) -> RoleMapping:
        """Which model plays each role."""
        model_of, adapter_of = {}, {}
        for name, members in self.groups.items():
            spec = self.models.get(name, self.model)
            for index, role in enumerate(members):
                model_of[role] = name
                has_adapters = spec is not None and spec.adapters is not None
                adapter_of[role] = index if has_adapters else -1
        return RoleMapping(model_of=model_of, adapter_of=adapter_of, frozen=self.frozen)
