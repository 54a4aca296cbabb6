"""Host groups from meshes, by hand."""

import pytest

from unimas_jax.runtime import placement
from unimas_jax.specs import MeshSpec, SpecError


def place(chips_per_host, **meshes):
    return placement.place(meshes, chips_per_host)


def test_models_that_share_chips_share_a_group():
    (group,) = place([4], a=MeshSpec(data=4), b=MeshSpec(tensor=4))
    assert group.hosts == (0,)
    assert group.chips == {'a': (0, 1, 2, 3), 'b': (0, 1, 2, 3)}


def test_models_split_the_chips_of_a_host():
    (group,) = place([4], a=MeshSpec(data=2), b=MeshSpec(data=2, first_chip=2))
    assert group.chips == {'a': (0, 1), 'b': (2, 3)}


def test_models_on_other_hosts_have_groups_of_their_own():
    """Four hosts of four chips, as a v5e-16: two models of two hosts each."""
    first, second = place(
        [4] * 4,
        b=MeshSpec(fsdp=2, tensor=4, first_chip=8),
        a=MeshSpec(fsdp=2, tensor=4),
    )
    assert (first.hosts, second.hosts) == ((0, 1), (2, 3))
    assert first.chips == {'a': tuple(range(8))}
    assert second.chips == {'b': tuple(range(8))}
    assert first.name != second.name


def test_a_mesh_may_end_inside_a_host():
    (group,) = place([2, 2], a=MeshSpec(data=2, first_chip=1), b=MeshSpec(data=4))
    assert group.hosts == (0, 1)
    assert group.chips == {'a': (1, 2), 'b': (0, 1, 2, 3)}


def test_hosts_may_differ_in_size():
    first, second = place([1, 3], a=MeshSpec(), b=MeshSpec(data=3, first_chip=1))
    assert (first.hosts, second.hosts) == ((0,), (1,))


def test_a_mesh_larger_than_the_devices_is_refused():
    with pytest.raises(SpecError, match="'a'.*ends at chip 9, but the 2 hosts have 8"):
        place([4, 4], a=MeshSpec(data=8, first_chip=1))


def test_models_that_share_some_hosts_only_are_refused():
    with pytest.raises(SpecError, match=r"'a' and 'b'.*\[0, 1\] and \[1\]"):
        place([2, 2], a=MeshSpec(data=4), b=MeshSpec(data=2, first_chip=2))


def test_hosts_needed_rounds_up():
    meshes = {'a': MeshSpec(data=4), 'b': MeshSpec(data=3, first_chip=4)}
    assert placement.hosts_needed(meshes, 2) == 4
    assert placement.hosts_needed(meshes, 8) == 1
