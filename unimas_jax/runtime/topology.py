"""Machines to plan for: kinds of chips, and how many of them; nothing here is jax.

Peaks are the vendors' figures for dense bfloat16 products and for memory traffic. What
a program may use of a chip's memory is what the compiler or the driver leaves of it.
"""

import dataclasses
import math
import re

from unimas_jax.specs import SpecError

GIB = 2**30


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chip:
    """One kind of accelerator.

    Attributes:
        platform: `tpu` or `cuda`.
        memory_bytes: Bytes that programs may use.
        flops: Peak bfloat16 operations per second.
        bandwidth: Peak bytes per second to and from its memory.

    Source: https://cloud.google.com/tpu/docs/v5e, /v5p and /v6e; the data sheet of the
    H100 SXM, https://www.nvidia.com/en-us/data-center/h100.
    """

    platform: str
    memory_bytes: int
    flops: float
    bandwidth: float


CHIPS = {
    'v5e': Chip(
        platform='tpu',
        memory_bytes=int(15.75 * GIB),
        flops=197e12,
        bandwidth=819e9,
    ),
    'v5p': Chip(
        platform='tpu',
        memory_bytes=int(95.74 * GIB),
        flops=459e12,
        bandwidth=2765e9,
    ),
    'v6e': Chip(
        platform='tpu',
        memory_bytes=int(31.25 * GIB),
        flops=918e12,
        bandwidth=1640e9,
    ),
    # An H100 with 80 GB, of which jax takes three quarters unless told otherwise.
    'gpu': Chip(
        platform='cuda',
        memory_bytes=int(0.75 * 80e9),
        flops=989e12,
        bandwidth=3350e9,
    ),
}
"""Kinds of chips by the names that `--topology` takes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Topology:
    """Some chips of one kind.

    Attributes:
        name: As the user wrote it.
        chip: Their kind.
        num_chips: How many.
    """

    name: str
    chip: Chip
    num_chips: int

    @property
    def platform(self) -> str:
        """Of the chips."""
        return self.chip.platform


def parse(text: str) -> Topology:
    """Read `v5e:4x4`, `v5p:4x4x4` or `gpu:8`.

    Raises:
        SpecError: It is none of these.
    """
    found = re.fullmatch(r'(\w+):(\d+(?:x\d+)*)', text)
    if found is None or found.group(1) not in CHIPS:
        raise SpecError(
            f'--topology is {text!r}: write a kind of {", ".join(CHIPS)} and a size, '
            'like v5e:4x4, v5p:4x4x4 or gpu:8.'
        )
    kind, size = found.groups()
    num_chips = math.prod(map(int, size.split('x')))
    if num_chips < 1:
        raise SpecError(f'--topology is {text!r}: use one chip or more.')
    return Topology(name=text, chip=CHIPS[kind], num_chips=num_chips)
