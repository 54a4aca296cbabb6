"""A store of objects, as `gs://` is one, kept in a local folder."""

import pathlib

import pytest
from etils.epath import testing


class Store:
    """Maps objects to files; notes how they are opened and refuses renames.

    Args:
        folder: Where the objects are.
    """

    def __init__(self, folder):
        self._folder = folder
        self.modes = set()

    def local(self, path):
        return pathlib.Path(str(path).replace('gs://', f'{self._folder}/'))

    def open(self, _, path, mode='r', **arguments):
        self.modes.add(mode)
        self.local(path).parent.mkdir(parents=True, exist_ok=True)
        return self.local(path).open(mode, **arguments)

    def exists(self, _, path):
        return self.local(path).exists()

    def rename(self, *_):
        pytest.fail('an object was renamed')


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path)
    with testing.mock_epath(
        open=store.open,
        exists=store.exists,
        rename=store.rename,
        replace=store.rename,
    ):
        yield store
