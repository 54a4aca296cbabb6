"""Train the tiny base model of the quickstart, tokenizer included.

    python scripts/make_base_model.py --out=examples/quickstart_base

The model learns, by next-token prediction alone, to read passages in the grammar of
`data.relations`: to tell facts again. Its documents are plain text
about entities of the split `base`, whose words no other split has. They hold no
instructions, no JSON and no tags, and there is no reinforcement learning.

Training has two phases: short documents, on which copying is discovered within minutes,
and then documents as long as the prompts of the quickstart. Takes about ten minutes on
two quiet CPU cores.

Axes: B documents, T tokens.
"""

import argparse
import dataclasses
import functools
import itertools
import json
import pathlib
import random
import shutil
import string
import tempfile
import time
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import tokenizers
from safetensors import numpy as safetensors_numpy

from unimas_jax.checkpoint import hf
from unimas_jax.data import relations
from unimas_jax.models import transformer
from unimas_jax.models.architecture import TransformerConfig
from unimas_jax.models.attention import train_attend
from unimas_jax.workflows import formats, prompts, qd_answer

UNKNOWN, PAD, END = '<unk>', '<pad>', '</s>'

VALUE_WEIGHT = 1.0
"""Of values that a document restates, and of names that a question asks about."""

NAME_WEIGHT = 0.3
"""Of the name of an entity that is told of again."""

CONTEXT_WEIGHT = 0.1
"""Of everything else: nobody can predict the names and values of passages."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Phase:
    """A part of the training.

    Attributes:
        steps: Optimizer steps.
        rows: B, documents of a batch.
        tokens: T, at which documents are cut.
        fact_counts: Facts of each entity; one of these for each document.
        num_retold: Entities whose facts a document tells again, 0 to 2.
        question_share: Documents that begin with a question and end with its answer.
        search_share: Documents with a line before each passage.
    """

    steps: int
    rows: int
    tokens: int
    fact_counts: tuple[int, ...]
    num_retold: int
    question_share: float
    search_share: float


PHASES = (
    Phase(
        steps=350,
        rows=64,
        tokens=64,
        fact_counts=(2,),
        num_retold=2,
        question_share=0.5,
        search_share=0.0,
    ),
    Phase(
        steps=300,
        rows=48,
        tokens=104,
        fact_counts=(3, 4, 4),
        num_retold=1,
        question_share=0.9,
        search_share=0.7,
    ),
)


def main():
    """Train and write the folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--out', required=True, help='folder to write; replaced')
    parser.add_argument('--seed', type=int, default=0, help='of data and weights')
    parser.add_argument('--learning_rate', type=float, default=3e-3)
    args = parser.parse_args()
    tokenizer = make_tokenizer()
    config = TransformerConfig(
        family='llama',
        vocab_size=tokenizer.get_vocab_size(),
        width=128,
        num_layers=3,
        num_heads=4,
        num_kv_heads=4,
        head_dim=32,
        mlp_width=256,
        rope_theta=10_000.0,
        norm_eps=1e-5,
        tie_embeddings=True,
        max_positions=512,
    )
    print(f'{transformer.num_params(config)} parameters, {config.vocab_size} tokens')
    params = train(config, tokenizer, seed=args.seed, learning_rate=args.learning_rate)
    write(pathlib.Path(args.out), params, config, tokenizer)


def make_tokenizer() -> tokenizers.Tokenizer:
    """Return a tokenizer of phrases, syllables and single characters.

    What the quickstart's prompts and replies always repeat is one token, so that they
    are short; names and values are their syllables; anything else is spelled.
    """
    phrases = [f' {relation} ' for relation in relations.RELATIONS]
    phrases += relations.RELATIONS
    phrases += ['Question: ', 'What is the', 'of ', ' and of ', ' and ']
    phrases += ['Search: ', '- ', 'So: ', 'The']
    phrases += ['\n', '{"sub_queries": ["', '", "', '"]}']
    phrases += ['<final_answer>', '</final_answer>', *_instructions()]
    syllables = [*relations.SYLLABLES]
    syllables += [syllable.capitalize() for syllable in relations.SYLLABLES]
    characters = string.ascii_letters + string.digits + string.punctuation + ' '
    pieces = dict.fromkeys([UNKNOWN, PAD, END, *phrases, *syllables, *characters])
    made = tokenizers.Tokenizer(
        tokenizers.models.WordLevel(
            {piece: index for index, piece in enumerate(pieces)}, unk_token=UNKNOWN
        )
    )
    longest_first = sorted(phrases, key=len, reverse=True)
    pattern = '|'.join(map(_escaped, [*longest_first, *syllables]))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Split(
        tokenizers.Regex(rf'{pattern}|[\s\S]'), 'isolated'
    )
    made.decoder = tokenizers.decoders.Fuse()
    made.add_special_tokens([UNKNOWN, PAD, END])
    return made


def _instructions() -> list[str]:
    """The lines of the workflow's instructions."""
    lines = []
    for role in qd_answer.build().roles:
        told = next(x for x in role.prompt if x.name == 'instructions')
        assert not prompts.variables_of(told)
        text = told.text.format()
        assert isinstance(role.format, (formats.JsonKey, formats.Tag))
        lines += text.splitlines(keepends=True)
    return lines


def _escaped(text: str) -> str:
    """Return a pattern of the tokenizer's dialect that matches just `text`."""
    special = set('\\.^$|?*+()[]{}-')
    spelled = ''.join(f'\\{x}' if x in special else x for x in text)
    return spelled.replace('\n', '\\n')


def documents(phase: Phase, seed: int) -> Iterator[list[tuple[str, float]]]:
    """Yield documents as (text, weight of its tokens in the loss)."""
    rng = random.Random(seed)
    sources = {
        count: relations.generate('base', num_facts=count, seed=10 * seed + count)
        for count in sorted(set(phase.fact_counts))
    }
    while True:
        pair = next(sources[rng.choice(phase.fact_counts)])
        entities = rng.sample([pair.first, pair.second], 2)
        is_asked = rng.random() < phase.question_share
        has_searches = rng.random() < phase.search_share
        parts = [(f'Question: {pair.question}\n', CONTEXT_WEIGHT)] if is_asked else []
        for entity in entities:
            if has_searches:
                # After a question, one of its two names: a copy worth learning.
                weight = VALUE_WEIGHT if is_asked else CONTEXT_WEIGHT
                parts += [('Search: ', CONTEXT_WEIGHT), (entity.name, weight)]
                parts.append(('\n- ', CONTEXT_WEIGHT))
            parts.append((f'{entity.passage}\n', CONTEXT_WEIGHT))
        if is_asked:
            parts += _answer(pair.relation, entities)
        for entity in rng.sample(entities, phase.num_retold):
            parts += _retold(entity, rng)
        yield parts


def _answer(relation: str, entities: list[relations.Entity]) -> list[tuple[str, float]]:
    """A line with the relation's values, in the order of the passages."""
    values = ' '.join(entity.value(relation) for entity in entities)
    return [
        ('So: ', CONTEXT_WEIGHT),
        (values, VALUE_WEIGHT),
        ('\n', CONTEXT_WEIGHT),
    ]


def _retold(entity: relations.Entity, rng: random.Random) -> list[tuple[str, float]]:
    """The entity's facts again, in another order."""
    parts = [(entity.name, NAME_WEIGHT), (':', CONTEXT_WEIGHT)]
    for relation, value in rng.sample(entity.facts, len(entity.facts)):
        parts += [(f' {relation} ', CONTEXT_WEIGHT), (value, VALUE_WEIGHT)]
        parts.append((',', CONTEXT_WEIGHT))
    return [*parts[:-1], ('.\n', CONTEXT_WEIGHT)]


def batches(
    phase: Phase, tokenizer: tokenizers.Tokenizer, seed: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield tokens [B, T + 1] int32 and their loss weights, 0 after the document."""
    source = documents(phase, seed)
    shape = (phase.rows, phase.tokens + 1)
    while True:
        tokens, weights = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
        for row, parts in enumerate(itertools.islice(source, phase.rows)):
            ids, weight_of = [], []
            for text, weight in parts:
                piece = tokenizer.encode(text).ids
                ids += piece
                weight_of += [weight] * len(piece)
            count = min(len(ids), shape[1])
            tokens[row, :count] = ids[:count]
            weights[row, :count] = weight_of[:count]
        yield tokens, weights


def train(
    config: TransformerConfig,
    tokenizer: tokenizers.Tokenizer,
    *,
    seed: int,
    learning_rate: float,
) -> transformer.Params:
    """Return trained parameters in the train layout."""
    steps = sum(phase.steps for phase in PHASES)
    schedule = optax.warmup_cosine_decay_schedule(0.0, learning_rate, 50, steps)
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adamw(schedule, b2=0.98, weight_decay=0.01),
    )
    params = initial(config, jax.random.key(seed))
    state = optimizer.init(params)

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(params, state, tokens, weights):
        (loss, accuracy), gradients = jax.value_and_grad(
            loss_and_accuracy, has_aux=True
        )(params, config, tokens, weights)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, loss, accuracy

    started, done = time.perf_counter(), 0
    for index, phase in enumerate(PHASES):
        source = batches(phase, tokenizer, seed + index)
        for tokens, weights in itertools.islice(source, phase.steps):
            params, state, loss, accuracy = step(params, state, tokens, weights)
            done += 1
            if done % 50 == 0:
                print(
                    f'step {done}  loss {loss:.3f}  restated values {accuracy:.3f}  '
                    f'{time.perf_counter() - started:.0f} s',
                    flush=True,
                )
    return jax.device_get(params)


def initial(config: TransformerConfig, key: jax.Array) -> transformer.Params:
    """Return random parameters under which a token can be told through all layers.

    Layers begin by adding little, so that copying, which compares tokens, is found
    early; with the usual scales they drown the embeddings.
    """
    params = jax.jit(functools.partial(transformer.init_params, config))(key)
    scales = {
        ('embed', 'table'): 5.0,
        ('output', 'kernel'): 0.1,
        ('down', 'kernel'): 0.1,
    }
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaf * scales.get((path[-2].key, path[-1].key), 1.0), params
    )


def loss_and_accuracy(params, config, tokens, weights):
    """Return the weighted next-token loss, and how often restated values are right."""
    inputs, targets, weights = tokens[:, :-1], tokens[:, 1:], weights[:, 1:]
    positions = jnp.broadcast_to(
        jnp.arange(inputs.shape[1], dtype=jnp.int32)[None], inputs.shape
    )
    # Documents come first in their rows, so that padding is never attended to.
    hidden, _ = transformer.trunk(
        params,
        config,
        inputs,
        positions,
        attend=train_attend(jnp.ones_like(inputs)),
        compute_dtype=jnp.float32,
    )
    scores = transformer.logits(params, config, hidden)
    losses = optax.softmax_cross_entropy_with_integer_labels(scores, targets)
    is_value = weights == VALUE_WEIGHT
    is_right = is_value & (scores.argmax(-1) == targets)
    return (losses * weights).sum() / weights.sum(), is_right.sum() / is_value.sum()


def write(
    folder: pathlib.Path,
    params: transformer.Params,
    config: TransformerConfig,
    tokenizer: tokenizers.Tokenizer,
):
    """Write a Hugging Face folder with bfloat16 weights, replacing what is there."""
    with tempfile.TemporaryDirectory() as scratch:
        made = pathlib.Path(scratch) / 'model'
        hf.export(made, params, config, source_folder=None)
        weights = safetensors_numpy.load_file(made / 'model.safetensors')
        half = {name: x.astype(ml_dtypes.bfloat16) for name, x in weights.items()}
        safetensors_numpy.save_file(
            half, made / 'model.safetensors', metadata={'format': 'pt'}
        )
        tokenizer.save(str(made / 'tokenizer.json'))
        end = tokenizer.token_to_id(END)
        _write_json(
            made / 'tokenizer_config.json',
            {
                'tokenizer_class': 'PreTrainedTokenizerFast',
                'unk_token': UNKNOWN,
                'pad_token': PAD,
                'eos_token': END,
                'model_max_length': config.max_positions,
                'clean_up_tokenization_spaces': False,
            },
        )
        _write_json(
            made / 'config.json',
            json.loads((made / 'config.json').read_text())
            | {'eos_token_id': end, 'bos_token_id': None, 'torch_dtype': 'bfloat16'},
        )
        _write_json(made / 'generation_config.json', {'eos_token_id': end})
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(made, folder)
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f'{folder}: {size / 1e6:.2f} MB')


def _write_json(path: pathlib.Path, content: dict):
    path.write_text(json.dumps(content, indent=2) + '\n')


if __name__ == '__main__':
    main()
