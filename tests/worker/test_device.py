"""What a specification says about a model's architecture."""

from unimas_jax import specs
from unimas_jax.worker import device


def spec(**fields):
    return specs.ModelSpec(
        weights='random',
        architecture='tiny',
        tokenizer='folder',
        context_tokens=8,
        optimizer=specs.OptimizerSpec(learning_rate=0.1),
        **fields,
    )


def test_adapters_are_scaled_by_alpha_over_rank():
    """The scale was once a constant, whatever the specification said."""
    adapters = specs.AdapterSpec(rank=4, alpha=2.0)
    assert device.architecture(spec(adapters=adapters)).adapter_scale == 0.5
