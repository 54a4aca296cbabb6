"""What to run, as frozen, validated, picklable data; standard library only."""

from unimas_jax.specs.checks import SpecError, check_types, require
from unimas_jax.specs.experiment import EvaluationSpec, Experiment
from unimas_jax.specs.learning import OptimizerSpec, PpoSpec, SftSpec
from unimas_jax.specs.models import (
    AdapterSpec,
    EndpointSpec,
    EngineSpec,
    MeshSpec,
    ModelSpec,
    RoleMapping,
    groups_of,
)
from unimas_jax.specs.rewards import (
    Absolute,
    Cost,
    Custom,
    FormatPenalty,
    Marginal,
    NextMarginal,
    Outcome,
    RewardSpec,
)
from unimas_jax.specs.roles import RoleSpec, Sampling, Section
from unimas_jax.specs.workflow import (
    RESERVED_FIELDS,
    Edge,
    Graph,
    Map,
    Parallel,
    RoleNode,
    ToolNode,
    WorkflowSpec,
    chain,
    graphs_in,
    writes_of,
)

__all__ = [
    'RESERVED_FIELDS',
    'Absolute',
    'AdapterSpec',
    'Cost',
    'Custom',
    'Edge',
    'EndpointSpec',
    'EngineSpec',
    'EvaluationSpec',
    'Experiment',
    'FormatPenalty',
    'Graph',
    'Map',
    'Marginal',
    'MeshSpec',
    'ModelSpec',
    'NextMarginal',
    'OptimizerSpec',
    'Outcome',
    'Parallel',
    'PpoSpec',
    'RewardSpec',
    'RoleMapping',
    'RoleNode',
    'RoleSpec',
    'Sampling',
    'Section',
    'SftSpec',
    'SpecError',
    'ToolNode',
    'WorkflowSpec',
    'chain',
    'check_types',
    'graphs_in',
    'groups_of',
    'require',
    'writes_of',
]
