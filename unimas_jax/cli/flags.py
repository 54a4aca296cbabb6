"""Flags that several subcommands share, and what they mean."""

import argparse
import os
import pathlib

from unimas_jax import config
from unimas_jax.controller.backend import Backend
from unimas_jax.runtime import ray_runtime
from unimas_jax.specs import require

_CACHE = pathlib.Path.home() / '.cache' / 'unimas_jax' / 'xla'


def add_experiment_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say what the experiment is."""
    parser.add_argument(
        '--gin_file',
        action='append',
        required=True,
        metavar='FILE',
        help='the experiment; repeat it to replace single axes, later files win',
    )
    parser.add_argument(
        '--gin_bindings',
        action='append',
        default=[],
        metavar='BINDING',
        help="one binding, which wins over files, like 'LEARNING_RATE = 3e-6'",
    )
    parser.add_argument(
        '--data_dir',
        default='.',
        metavar='DIR',
        help='folder to which the data set and tool paths of the experiment refer '
        '(default: the current folder)',
    )


def add_run_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say where the experiment runs."""
    parser.add_argument(
        '--output_dir',
        required=True,
        metavar='DIR',
        help='the run folder, also gs://; a run that is there is continued',
    )
    parser.add_argument(
        '--runtime',
        choices=('ray', 'local'),
        default='ray',
        help='ray: one worker process for each host of the cluster at RAY_ADDRESS, or '
        'of this machine; local: everything in this process (default: ray)',
    )
    parser.add_argument(
        '--hosts',
        type=int,
        default=0,
        metavar='N',
        help='hosts to use; 0 takes as many as the meshes need (default: 0)',
    )
    parser.add_argument(
        '--cpu_devices',
        type=int,
        default=0,
        metavar='N',
        help='run on CPU with N devices on each host, for trying out meshes; 0 leaves '
        'the platform to jax (default: 0)',
    )


def load(args: argparse.Namespace) -> config.Loaded:
    """Load the experiment that the flags name."""
    return config.load(args.gin_file, args.gin_bindings)


def open_backend(
    args: argparse.Namespace, loaded: config.Loaded, *, rollout_dir: str = ''
) -> Backend:
    """Return the runtime that the flags name, not yet started.

    Args:
        args: With the run flags.
        loaded: The experiment.
        rollout_dir: Where each step's rollouts are kept; empty keeps none.
    """
    for name in ('hosts', 'cpu_devices'):
        value = getattr(args, name)
        require(value >= 0, f'--{name}', value, 'use 0 or more.')
    _keep_compilations()
    if args.runtime == 'ray':
        return ray_runtime.RayRuntime.for_experiment(
            loaded.experiment,
            num_hosts=args.hosts,
            cpu_devices=args.cpu_devices,
            rollout_dir=rollout_dir,
        )
    require(args.hosts <= 1, '--hosts', args.hosts, 'runtime local has one host.')
    if args.cpu_devices:
        os.environ['JAX_PLATFORMS'] = 'cpu'
        os.environ['JAX_NUM_CPU_DEVICES'] = str(args.cpu_devices)
    # Here because it loads jax, which a driver of other processes must not.
    from unimas_jax.runtime import local

    return local.LocalRuntime.for_experiment(loaded.experiment, rollout_dir=rollout_dir)


def _keep_compilations() -> None:
    """Let jax keep compiled programs, here and in the workers of this machine.

    A second run of an experiment, or a second model of the same shape, then starts in
    seconds. What the user's environment says wins.
    """
    for name, value in (
        ('JAX_COMPILATION_CACHE_DIR', str(_CACHE)),
        ('JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS', '0'),
        ('JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES', '-1'),
    ):
        os.environ.setdefault(name, value)
