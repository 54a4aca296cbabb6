"""The small experiment with real, tiny, random models."""

import fakes
import small_experiment

from unimas_jax import specs


def experiment(tokenizer_folder, *, mesh=None, **changes):
    """Return three steps with one model for each role, both on one mesh.

    Args:
        tokenizer_folder: Where a tokenizer is written.
        mesh: Of both models; None is one chip.
        **changes: Fields of the experiment.
    """
    tokenizer = fakes.byte_tokenizer(tokenizer_folder, chat=False)
    model = specs.ModelSpec(
        weights='random',
        architecture='tiny',
        tokenizer=tokenizer,
        context_tokens=128,
        compute_dtype='float32',
        mesh=mesh or specs.MeshSpec(),
        engine=specs.EngineSpec(
            rows=8,
            page_tokens=16,
            prefill_rows=4,
            steps_per_chunk=4,
            attention_block_tokens=32,
        ),
        ppo=specs.PpoSpec(microbatch_rows=4, logit_chunk_tokens=64),
        optimizer=specs.OptimizerSpec(learning_rate=1e-3),
    )
    fields = dict(
        models={'draft': model, 'answer': model},
        num_steps=3,
        evaluation=specs.EvaluationSpec(every=2),
        save_every=1,
    )
    return small_experiment.experiment(**(fields | changes))
