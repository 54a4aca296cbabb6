"""Eight CPU devices and strict NumPy rules for every test process.

Programs that several tests compile are compiled once: the cache is kept between runs,
and worker processes that tests start use it too.
"""

import os
import pathlib

_CACHE = pathlib.Path(__file__).parent.parent / '.pytest_cache' / 'xla'
os.environ.setdefault('JAX_COMPILATION_CACHE_DIR', str(_CACHE))
os.environ.setdefault('JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS', '0')
os.environ.setdefault('JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES', '-1')

import jax  # noqa: E402 - reads the environment

jax.config.update('jax_platforms', 'cpu')
jax.config.update('jax_num_cpu_devices', 8)
jax.config.update('jax_numpy_rank_promotion', 'raise')
