"""Compile once: most of these tests' time would go there, for every process anew."""

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache


@pytest.fixture(scope='session', autouse=True)
def shared_compilations(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp('compiled'))
    with pytest.MonkeyPatch.context() as patch:
        # For processes that tests start, then for this one.
        patch.setenv('JAX_COMPILATION_CACHE_DIR', folder)
        patch.setenv('JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS', '0')
        jax.config.update('jax_compilation_cache_dir', folder)
        jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)
        compilation_cache.reset_cache()
        yield
        jax.config.update('jax_compilation_cache_dir', None)
        jax.config.update('jax_persistent_cache_min_compile_time_secs', 1.0)
        compilation_cache.reset_cache()
