"""Physical models: weights, mesh, engine, learner; and which model plays which role."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Literal

from unimas_jax.specs.checks import SpecError, check_types, require
from unimas_jax.specs.learning import OptimizerSpec, PpoSpec


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeshSpec:
    """The chips of one model: `data * fsdp * tensor` of them.

    Attributes:
        data: Copies of the weights; rows are split over them.
        fsdp: Shards of the training weights; rows are split over them too.
        tensor: Shards of heads and hidden units.
        first_chip: Index of the first chip, counted over the hosts in order; models
            with disjoint ranges split the chips, with equal ranges share them.
    """

    data: int = 1
    fsdp: int = 1
    tensor: int = 1
    first_chip: int = 0

    def __post_init__(self):
        check_types(self)
        for name in ('data', 'fsdp', 'tensor'):
            value = getattr(self, name)
            require(value >= 1, f'MeshSpec.{name}', value, 'use 1 or more.')
        require(
            self.first_chip >= 0,
            'MeshSpec.first_chip',
            self.first_chip,
            'use 0 or more.',
        )

    @property
    def chips(self) -> int:
        """Number of chips of the mesh."""
        return self.data * self.fsdp * self.tensor


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineSpec:
    """The sampler of one model.

    Attributes:
        rows: Replies decoded at once over the whole mesh.
        page_tokens: Tokens of a cache page, and of one prefill chunk.
        prefill_rows: Chunks computed by one prefill launch over the whole mesh.
        cache_tokens: Tokens the cache holds over the whole mesh; 0 gives every row
            the model's `context_tokens`.
        steps_per_chunk: Decode steps between two looks at the host.
        attention_block_tokens: Keys read by one step of the attention loop; a
            multiple of `page_tokens`.
        prefix_cache: Reuse the pages of equal prompt prefixes while weights stand.
        attention: Backend; `auto` takes the platform's.
    """

    rows: int = 16
    page_tokens: int = 64
    prefill_rows: int = 4
    cache_tokens: int = 0
    steps_per_chunk: int = 16
    attention_block_tokens: int = 256
    prefix_cache: bool = True
    attention: Literal['auto', 'xla'] = 'auto'

    def __post_init__(self):
        check_types(self)
        for name in ('rows', 'page_tokens', 'prefill_rows', 'steps_per_chunk'):
            value = getattr(self, name)
            require(value >= 1, f'EngineSpec.{name}', value, 'use 1 or more.')
        require(
            self.attention_block_tokens % self.page_tokens == 0
            and self.attention_block_tokens > 0,
            'EngineSpec.attention_block_tokens',
            self.attention_block_tokens,
            f'use a multiple of page_tokens ({self.page_tokens}).',
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdapterSpec:
    """Low-rank adapters over a frozen base, one for each role of the model.

    Attributes:
        rank: Inner width; at least 1.
        alpha: The update is scaled by alpha / rank.
    """

    rank: int
    alpha: float

    def __post_init__(self):
        check_types(self)
        require(self.rank >= 1, 'AdapterSpec.rank', self.rank, 'use 1 or more.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """A physical language model.

    Attributes:
        weights: A Hugging Face folder, a hub id, or `random`.
        architecture: Name in the model zoo; needed for `random` weights, otherwise
            the folder's config.json decides.
        tokenizer: Folder or hub id; empty takes `weights`.
        context_tokens: Longest prompt and reply together.
        compute_dtype: Type of activations and of the sampler's weights.
        mesh: Chips.
        engine: Sampler.
        ppo: Learner.
        optimizer: The policy's optimizer.
        adapters: Train adapters over a frozen base; None trains every weight.
    """

    weights: str
    context_tokens: int
    optimizer: OptimizerSpec
    architecture: str = ''
    tokenizer: str = ''
    compute_dtype: Literal['float32', 'bfloat16'] = 'bfloat16'
    mesh: MeshSpec = MeshSpec()
    engine: EngineSpec = EngineSpec()
    ppo: PpoSpec = PpoSpec()
    adapters: AdapterSpec | None = None

    def __post_init__(self):
        check_types(self)
        require(
            bool(self.weights),
            'ModelSpec.weights',
            self.weights,
            "name a folder, a hub id, or 'random'.",
        )
        require(
            self.weights != 'random' or bool(self.architecture),
            'ModelSpec.architecture',
            self.architecture,
            "weights 'random' needs an architecture of the zoo.",
        )
        require(
            self.weights != 'random' or bool(self.tokenizer),
            'ModelSpec.tokenizer',
            self.tokenizer,
            "weights 'random' needs a tokenizer folder.",
        )
        require(
            self.context_tokens >= 2,
            'ModelSpec.context_tokens',
            self.context_tokens,
            'use 2 or more.',
        )
        shards = self.mesh.data * self.mesh.fsdp
        for where, rows in (
            ('EngineSpec.rows', self.engine.rows),
            ('EngineSpec.prefill_rows', self.engine.prefill_rows),
            ('PpoSpec.microbatch_rows', self.ppo.microbatch_rows),
        ):
            require(
                rows % shards == 0,
                where,
                rows,
                f'use a multiple of data * fsdp = {shards}.',
            )
        require(
            self.ppo.row_tokens == 0 or self.ppo.row_tokens >= self.context_tokens,
            'PpoSpec.row_tokens',
            self.ppo.row_tokens,
            f'a row must hold a whole context ({self.context_tokens} tokens).',
        )

    @property
    def row_tokens(self) -> int:
        """Tokens of a training row."""
        return self.ppo.row_tokens or self.context_tokens

    @property
    def cache_tokens(self) -> int:
        """Tokens of the cache over the whole mesh."""
        return self.engine.cache_tokens or self.engine.rows * self.context_tokens


@dataclasses.dataclass(frozen=True, kw_only=True)
class EndpointSpec:
    """An OpenAI-compatible endpoint that plays a role without being trained.

    Attributes:
        url: Base address, up to and including `/v1`.
        model: The name the endpoint knows.
        api_key_variable: Environment variable with the key; empty sends none.
        timeout_seconds: Limit of one attempt.
        retries: Further attempts after an infrastructure failure.
    """

    url: str
    model: str
    api_key_variable: str = ''
    timeout_seconds: float = 120.0
    retries: int = 3

    def __post_init__(self):
        check_types(self)
        require(
            self.url.startswith(('http://', 'https://')),
            'EndpointSpec.url',
            self.url,
            'use an http(s) address.',
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoleMapping:
    """Phi: which model plays each role.

    Attributes:
        model_of: Role to model name.
        adapter_of: Role to adapter index within its model; -1 is the base.
        frozen: Roles whose replies are not trained on.
    """

    model_of: Mapping[str, str]
    adapter_of: Mapping[str, int]
    frozen: tuple[str, ...] = ()

    @property
    def models(self) -> tuple[str, ...]:
        """Model names, in the order of their first role."""
        return tuple(dict.fromkeys(self.model_of.values()))

    def is_trainable(self, role: str) -> bool:
        """Whether a role's replies are credited and trained on."""
        return role in self.model_of and role not in self.frozen


def groups_of(
    sharing: str | Mapping[str, Sequence[str]], roles: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Return model name to roles for a `sharing` line.

    Args:
        sharing: `full` (one model named `shared`), `separate` (one for each role,
            named as the role), or groups by name.
        roles: Roles that a model plays, in the workflow's order.

    Raises:
        SpecError: A group names an unknown role, or a role is in no group or in two.
    """
    if sharing == 'full':
        return {'shared': tuple(roles)}
    if sharing == 'separate':
        return {role: (role,) for role in roles}
    if isinstance(sharing, str):
        raise SpecError(
            f"Experiment.sharing is {sharing!r}: use 'full', 'separate' or "
            '{group: [roles]}.'
        )
    groups = {name: tuple(members) for name, members in sharing.items()}
    placed = [role for members in groups.values() for role in members]
    for role in placed:
        require(
            role in roles,
            'Experiment.sharing',
            role,
            f'no such role; the workflow has {list(roles)}.',
        )
        require(
            placed.count(role) == 1,
            'Experiment.sharing',
            role,
            'this role is in two groups.',
        )
    for role in roles:
        require(
            role in placed,
            'Experiment.sharing',
            dict(groups),
            f'role {role!r} has no model; add it to a group.',
        )
    return groups
