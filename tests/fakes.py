"""Small real parts for tests: a byte tokenizer in a Hugging Face folder."""

import json
import pathlib

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

SPECIALS = ('<|endoftext|>', '<|im_start|>', '<|im_end|>')

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
    "message['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

# As Qwen3's: without a thought, the prompt holds an empty one.
SWITCH_TEMPLATE = (
    CHAT_TEMPLATE + '{% if enable_thinking is defined and enable_thinking is false %}'
    "{{ '<think>\n\n</think>\n\n' }}{% endif %}"
)
# As of models that always think: the prompt begins the thought.
OPENING_TEMPLATE = CHAT_TEMPLATE + "{{ '<think>\n' }}"


def byte_tokenizer(
    folder, *, chat: bool = True, template: str = CHAT_TEMPLATE, specials=()
) -> str:
    """Write a tokenizer whose ids are bytes, then `SPECIALS`; return the folder.

    With `chat` it has a template in which `<|im_end|>` (258) ends a turn; the end of
    text is `<|endoftext|>` (256). `specials` are further control tokens.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    alphabet = bytes_alphabet()
    tokenizer = tokenizers.Tokenizer(
        models.BPE(vocab={alphabet[i]: i for i in range(256)}, merges=[])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([*SPECIALS, *specials])
    tokenizer.save(str(folder / 'tokenizer.json'))
    config = {
        'tokenizer_class': 'PreTrainedTokenizerFast',
        'eos_token': SPECIALS[0],
        'additional_special_tokens': [*SPECIALS[1:], *specials],
    }
    if chat:
        config['chat_template'] = template
    (folder / 'tokenizer_config.json').write_text(json.dumps(config))
    return str(folder)


def bytes_alphabet() -> list[str]:
    """The character that stands for each byte in byte-level vocabularies."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(i if i in printable else next(others)) for i in range(256)]
