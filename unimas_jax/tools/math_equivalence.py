r"""Whether two mathematical answers are the same: a program that serves one parent.

    python math_equivalence.py MEMORY_MB

Reads one JSON array `[cpu_seconds, golds, answer]` a line and answers `1` or `0`. The
kernel ends the process when a pair has used up its CPU seconds (SIGPROF): a formula can
keep a computer algebra system busy in ways that Python cannot interrupt. The memory
limit makes such a pair unequal. Nothing of this package is imported, so that the
program starts quickly and the parent never loads a computer algebra system.

A pair is read as LaTeX; two plain numbers that differ as such are read as text too,
which knows `1 000` and `1,22`. Other text is not: its reader takes the last number that
it finds, to which `x + 1` and `x - 1` are equal.
"""

import json
import logging
import os
import re
import resource
import signal
import sys
from typing import TextIO

from math_verify import parse, verify

_DELIMITERS = ('$', r'\(', r'\[', r'\boxed')
_NUMBER = re.compile(
    r'[-+]?([0-9]{1,3}([ ,][0-9]{3})+(\.[0-9]+)?|[0-9]+([.,][0-9]+)?|\.[0-9]+)'
)


def equivalent(gold: str, answer: str) -> bool:
    """Return whether an answer equals a gold answer, as `math-verify` decides."""
    if _verified(_as_latex(gold), _as_latex(answer)):
        return True
    are_numbers = _NUMBER.fullmatch(gold) and _NUMBER.fullmatch(answer)
    return bool(are_numbers) and _verified(gold, answer)


def _as_latex(text: str) -> str:
    return text if any(mark in text for mark in _DELIMITERS) else f'${text}$'


def _verified(gold: str, answer: str) -> bool:
    # Its own limits use SIGALRM and can be swallowed by what they interrupt.
    wanted, found = (parse(text, parsing_timeout=0) for text in (gold, answer))
    return verify(wanted, found, timeout_seconds=None)


def serve(requests: TextIO, replies: TextIO) -> None:
    """Answer requests until there are no more."""
    for line in requests:
        cpu_seconds, golds, answer = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
        found = any(equivalent(gold, answer) for gold in golds)
        signal.setitimer(signal.ITIMER_PROF, 0)
        replies.write('1\n' if found else '0\n')
        replies.flush()


def main() -> None:
    """Serve standard input and output."""
    memory = int(sys.argv[1]) * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    logging.disable(logging.CRITICAL)
    # What the libraries print must not be taken for a verdict.
    replies = os.fdopen(os.dup(sys.stdout.fileno()), 'w')
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    equivalent('1', '2')  # Compiles patterns, which no pair shall pay for.
    replies.write('ready\n')
    replies.flush()
    serve(sys.stdin, replies)


if __name__ == '__main__':
    main()
