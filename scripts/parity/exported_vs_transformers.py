"""Compare models that were trained and exported with transformers, logit by logit.

    pip install torch==2.13.0 transformers==5.24.0 jax==0.10.2 flax==0.12.8 \
        optax orbax-checkpoint chex
    PYTHONPATH=.:scripts/golden python scripts/parity/exported_vs_transformers.py

A small random model of each family, saved by transformers, gets a warm start and a few
PPO steps in a worker, as in a run, and is exported, once in one file and once in
several. Another is trained by adapters, which the export merges. Prints for each
export the largest difference between the logits of transformers, which loads it, and
ours from the trained masters; and how far training has moved the logits. Exits with 1
if a limit below is broken.
"""

import json
import pathlib
import shutil
import sys
import tempfile

import jax
import make_hf_golden
import numpy as np
import smollm2_vs_transformers
import torch
import transformers

from unimas_jax import specs
from unimas_jax.checkpoint import hf
from unimas_jax.protocol import Demonstration, Request, Segment
from unimas_jax.trace import Credit, Key
from unimas_jax.worker.worker import Worker

TOKENIZER = pathlib.Path(__file__).parents[2] / 'examples' / 'debate' / 'tokenizer'
ROLES = ('ask', 'answer')
NUM_STEPS = 3
LARGEST_DIFFERENCE = 1e-3
LEAST_MOVED = 1e-2
"""Logits that training has not moved would prove nothing."""


def make_worker(folder: pathlib.Path, *, adapters: specs.AdapterSpec | None) -> Worker:
    """Return a started worker of one model that plays both roles."""
    spec = specs.ModelSpec(
        weights=str(folder),
        context_tokens=64,
        compute_dtype='float32',
        optimizer=specs.OptimizerSpec(learning_rate=1e-3),
        engine=specs.EngineSpec(rows=4, page_tokens=16, attention_block_tokens=32),
        ppo=specs.PpoSpec(remat=False, microbatch_rows=2),
        adapters=adapters,
    )
    worker = Worker({'policy': spec}, seed=0, roles={'policy': ROLES})
    worker.start()
    return worker


def train(worker: Worker, *, adapter_of: dict[str, int]) -> None:
    """Imitate one exchange of each role, then take PPO steps."""
    question = (Segment(name='question', text='What follows?'),)
    worker.sft(
        {
            'policy': [
                Demonstration(role=role, segments=question, text='7', prompt_tokens=32)
                for role in ROLES
            ]
        },
        specs.SftSpec(demonstrations=None, epochs=2, batch_size=2, learning_rate=1e-3),
    )
    for step in range(1, NUM_STEPS + 1):
        asked = [
            Request(
                key=Key(f'q{index}', 0, (), role, 0, (), 0),
                step=step,
                role=role,
                model='policy',
                adapter=adapter_of[role],
                segments=question,
                prompt_tokens=32,
                sampling=specs.Sampling(max_tokens=12),
            )
            for index in range(4)
            for role in ROLES
        ]
        worker.submit(asked)
        replies = []
        while len(replies) < len(asked):
            replies += worker.collect(5.0)
        worker.score(step)
        worker.commit(
            [
                Credit(
                    key=reply.key,
                    role=reply.key.node,
                    model='policy',
                    reward=float(reply.response_tokens % 3),
                )
                for reply in replies
            ]
        )
        worker.update(step)


def theirs(folder: pathlib.Path | str, ids: list[int]) -> np.ndarray:
    """Return the logits [N, V] of transformers in float32."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32
    ).eval()
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].numpy()


def compare(family: str, root: pathlib.Path, *, with_adapters: bool) -> list[dict]:
    """Train a model of a family; return a row for each of its exports."""
    source = root / 'source'
    model = make_hf_golden.random_model(family, vocab_size=259, dtype='float32')
    model.save_pretrained(source)
    shutil.copytree(TOKENIZER, source, dirs_exist_ok=True)
    adapters = specs.AdapterSpec(rank=2, alpha=4.0) if with_adapters else None
    adapter_of = {role: i if adapters else -1 for i, role in enumerate(ROLES)}
    worker = make_worker(source, adapters=adapters)
    train(worker, adapter_of=adapter_of)
    written = worker.export('policy', str(root / 'exported'))
    # The masters themselves, and not what an export says that they are.
    trained = worker._host.models['policy']
    config, params = trained.config, jax.device_get(trained.state.train.params)
    worker.stop()
    exports = {
        path: adapter_of[pathlib.Path(path).name] if adapters else -1
        for path in written
    }
    if not adapters:
        several = root / 'several'
        hf.export(several, params, config, source_folder=source, max_shard_bytes=40_000)
        assert len(list(several.glob('*.safetensors'))) > 3
        exports[str(several)] = -1
    ids = np.random.default_rng(0).integers(0, 259, 48).tolist()
    before, rows = theirs(source, ids), []
    for path, adapter in exports.items():
        ours = smollm2_vs_transformers.make_ours(config, params, adapter=adapter)
        found = theirs(path, ids)
        rows.append(
            {
                'model': family + (' with adapters' if adapters else ''),
                'export': pathlib.Path(path).name,
                'largest_difference': float(np.abs(ours(ids) - found).max()),
                'moved_by_training': float(np.abs(found - before).max()),
            }
        )
    return rows


def main():
    """Compare, print and judge."""
    jax.config.update('jax_platforms', 'cpu')
    rows = []
    cases = [(family, False) for family in make_hf_golden.MODELS]
    for family, with_adapters in [*cases, ('qwen3_head_dim', True)]:
        with tempfile.TemporaryDirectory() as root:
            found = compare(family, pathlib.Path(root), with_adapters=with_adapters)
        for row in found:
            print(json.dumps(row), flush=True)
        rows += found
    is_fine = all(
        row['largest_difference'] < LARGEST_DIFFERENCE
        and row['moved_by_training'] > LEAST_MOVED
        for row in rows
    )
    sys.exit(0 if is_fine else 1)


if __name__ == '__main__':
    main()
