"""One model's state on this process's devices, and the table of its programs.

The engine's programs (`generation`) and the learner's (`update`) are joined here and
compiled before the first step; afterwards only compiled programs run.
"""

from collections.abc import Callable, Mapping

from jax.sharding import Mesh

from unimas_jax.models.config import TransformerConfig
from unimas_jax.specs import ModelSpec
from unimas_jax.worker.commands import Argument
from unimas_jax.worker.executor import Outputs
from unimas_jax.worker.programs import LearnerPrograms, ModelState

MakeLearner = Callable[[TransformerConfig, ModelSpec, Mesh], LearnerPrograms]


class DeviceModel:
    """A model on the devices; every process of its host group has one.

    Args:
        name: The model's name.
        spec: Its specification.
        config: Its architecture.
        mesh: Its devices.
        learner: The learner's programs; None for a model that is never trained.
    """

    def __init__(
        self,
        name: str,
        spec: ModelSpec,
        *,
        config: TransformerConfig,
        mesh: Mesh,
        learner: LearnerPrograms | None,
    ):
        self.name, self.spec, self.config, self.mesh = name, spec, config, mesh
        self.state = ModelState()
        self._programs = [] if learner is None else list(learner.programs())
        self._table = {} if learner is None else dict(learner.table())

    def run(self, name: str, args: Mapping[str, Argument]) -> Outputs:
        """Launch the entry `name` of the table; on the launching thread only."""
        return self._table[name](self.state, args)

    def compile_all(self) -> list[tuple[str, float]]:
        """Compile every program; return names and seconds."""
        return [(program.name, program.compile()) for program in self._programs]
