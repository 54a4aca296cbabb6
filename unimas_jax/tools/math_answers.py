r"""The final answer of a mathematical reply, found by rules of our own.

In this order; the first that finds something decides:
  1. the last `<answer>...</answer>`, whatever else the reply holds;
  2. the last `\boxed{...}` whose braces close;
  3. what follows the last announcement in its line: `#### 5`, `Answer: 5`,
     `The answer is 5`.

Reasoning in `<think>` holds no answer. A box inside the tag is unwrapped, so that both
rules agree on `<answer>\boxed{5}</answer>`.
"""

import re

_BOX = re.compile(r'\\(?:boxed|fbox)\s*(?=\{)')
_ANNOUNCED = re.compile(
    r'####|\banswer\b[*_\s]*(?:is|are|:|=)[:\s]*|^[ \t]*A[ \t]*:',
    re.IGNORECASE | re.MULTILINE,
)


def final_answer(reply: str, *, tag: str = 'answer') -> str | None:
    """Return the final answer of a reply, or None if it has none.

    Args:
        reply: What a role said, reasoning included.
        tag: Name of the tag that rule 1 looks for.
    """
    reply = reply.rpartition('</think>')[2]
    if '<think>' in reply:
        return None
    for found in (_tagged(reply, tag), last_boxed(reply), _announced(reply)):
        if found:
            return last_boxed(found) or found
    return None


def last_boxed(text: str) -> str | None:
    r"""Return what the last `\boxed{...}` holds; None without a box that closes."""
    closed_by = _pairs(text)
    for match in reversed(list(_BOX.finditer(text))):
        start = match.end()
        if start in closed_by:
            return text[start + 1 : closed_by[start]].strip()
    return None


def _pairs(text: str) -> dict[int, int]:
    """Return the position of each opening brace that is closed, and of its closing."""
    pairs, opened = {}, []
    for index, character in enumerate(text):
        if character not in '{}' or text[index - 1 : index] == '\\':
            continue
        if character == '{':
            opened.append(index)
        elif opened:
            pairs[opened.pop()] = index
    return pairs


def _tagged(reply: str, tag: str) -> str | None:
    name = re.escape(tag)
    found = re.findall(f'<{name}>((?:(?!<{name}>).)*?)</{name}>', reply, re.DOTALL)
    return found[-1].strip() if found else None


def _announced(reply: str) -> str | None:
    for match in reversed(list(_ANNOUNCED.finditer(reply))):
        line = reply[match.end() :].partition('\n')[0]
        answer = line.strip(' \r\t*_').rstrip('.').strip(' *_')
        if answer:
            return answer
    return None
