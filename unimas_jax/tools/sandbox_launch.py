"""How a process is started in the sandbox, and what this machine lacks for it.

Each process is started through

    bwrap     new namespaces (pid, network, mount, ipc, uts; user, for ordinary users);
              read-only `/usr` and interpreter, a private `/tmp`, nothing else of the
              file system; system calls filtered; no capabilities
    setpriv   (only as root) an unprivileged user of its own
    prlimit   memory, CPU time, threads, open files, size of files
    python    isolated, with an empty environment

`bwrap` waits for the process, which is number 1 of its namespace: when it ends, the
kernel has ended everything that it started. It dies with this process. As root, one
thing survives a driver that is killed with SIGKILL: a solution that has already become
another user, whom the signal of the dying `bwrap` may not reach. It then runs alone,
without network, until its limit of CPU time.
"""

import ctypes.util
import dataclasses
import errno
import importlib
import math
import os
import pathlib
import shutil
import sys
import tempfile
from typing import Any

_BUBBLEWRAP = 'bubblewrap (apt install bubblewrap): namespaces and the file system'
_LIBSECCOMP = 'libseccomp (apt install libseccomp2): the filter of system calls'
_PRLIMIT = 'prlimit (apt install util-linux): limits'
_SETPRIV = 'setpriv (apt install util-linux): a user of its own'

_START = (
    'import sys; sys.path.insert(0, {folder!r}); '
    'from unimas_jax.tools.{module} import main; main()'
)

# Reached neither by a correct solution nor by Python itself: kernel interfaces that are
# not confined to a namespace, hold memory that no limit counts, or look into others.
_DENIED_CALLS = (
    'acct add_key bpf chroot clock_adjtime clock_settime delete_module fanotify_init '
    'finit_module fork fsconfig fsmount fsopen fspick init_module io_uring_enter '
    'io_uring_register io_uring_setup kcmp kexec_file_load kexec_load keyctl '
    'lookup_dcookie memfd_create memfd_secret mount mount_setattr move_mount mq_open '
    'msgget name_to_handle_at open_by_handle_at open_tree perf_event_open pidfd_getfd '
    'pivot_root process_vm_readv process_vm_writev ptrace quotactl reboot request_key '
    'semget setns settimeofday shmat shmctl shmget swapoff swapon syslog umount '
    'umount2 unshare userfaultfd vfork vhangup'
).split()
_CLONE_THREAD = 0x00010000
_AF_UNIX = 1

_FIRST_UID = 20_000
_UIDS = 40_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """What one sandboxed process may use.

    Attributes:
        cpu_seconds: CPU time, starting Python included.
        wall_seconds: Time, whatever the process does.
        memory_bytes: Address space.
        output_bytes: Size of each output and of each file.
        folder_bytes: All files in the private folder together.
        threads: Threads.
    """

    cpu_seconds: float = 1.0
    wall_seconds: float = 10.0
    memory_bytes: int = 1 << 30
    output_bytes: int = 8 << 20
    folder_bytes: int = 16 << 20
    threads: int = 32


@dataclasses.dataclass(frozen=True, kw_only=True)
class Launcher:
    """Builds command lines for this machine.

    Attributes:
        interpreter: The Python that runs solutions.
        prefix: Folder with that Python and its standard library.
        bwrap: Path of bubblewrap; empty where it is missing.
        seccomp: The filter, as a BPF program; empty where it cannot be made.
        is_root: Whether this process is root, which must give that up.
        missing: What this machine lacks, one line each.
    """

    interpreter: str
    prefix: str
    bwrap: str
    seccomp: bytes
    is_root: bool
    missing: tuple[str, ...]

    def command(
        self, module: str, limits: Limits, *, slot: int, filter_fd: int
    ) -> list[str]:
        """Return the command line of a guest, without its arguments.

        Args:
            module: Module of `unimas_jax.tools` whose `main` runs in the sandbox.
            limits: Of the process.
            slot: Told apart from others that run at the same time, from 0.
            filter_fd: Open file that holds `seccomp`.
        """
        guest = _GUEST if self.bwrap else str(_TOOLS.parent.parent)
        # As isolated as -I, but for PYTHONHASHSEED: sets have one order.
        python = [self.interpreter, '-P', '-s', '-S', '-X', 'utf8', '-c']
        python.append(_START.format(folder=guest, module=module))
        return [
            *self._namespaces(limits, filter_fd),
            *self._user(slot),
            *_prlimit(limits),
            *python,
        ]

    def _namespaces(self, limits: Limits, filter_fd: int) -> list[str]:
        if not self.bwrap:
            return []
        command = [self.bwrap, '--unshare-pid', '--unshare-net', '--unshare-ipc']
        command += ['--unshare-uts', '--unshare-cgroup-try', '--hostname', 'sandbox']
        command += ['--as-pid-1', '--die-with-parent', '--new-session', '--clearenv']
        command += ['--setenv', 'PYTHONHASHSEED', '0', '--cap-drop', 'ALL']
        if self.is_root:
            command += ['--cap-add', 'CAP_SETUID', '--cap-add', 'CAP_SETGID']
            command += ['--cap-add', 'CAP_SETPCAP']
        else:
            command += ['--unshare-user', '--disable-userns']
        if self.seccomp:
            command += ['--seccomp', str(filter_fd)]
        for path in _system_folders(self.prefix):
            if path.is_symlink():
                command += ['--symlink', os.readlink(path), str(path)]
            else:
                command += _read_only(path, path)
        command += _read_only(_TOOLS, pathlib.Path(_GUEST, 'unimas_jax', 'tools'))
        command += ['--proc', '/proc', '--dev', '/dev', '--remount-ro', '/dev']
        command += ['--size', str(limits.folder_bytes), '--perms', '1777']
        return [*command, '--tmpfs', '/tmp', '--chdir', '/tmp', '--remount-ro', '/']

    def _user(self, slot: int) -> list[str]:
        if not self.is_root:
            return []
        user = str(user_of(slot))
        command = ['setpriv', '--reuid', user, '--regid', user, '--clear-groups']
        command += ['--no-new-privs', '--inh-caps=-all', '--bounding-set=-all']
        # A change of user forgets it.
        return [*command, '--pdeathsig', 'KILL']


_TOOLS = pathlib.Path(__file__).resolve().parent
_GUEST = '/guest'


def find() -> Launcher:
    """Return the launcher for this machine; its `missing` says what it lacks."""
    interpreter = os.path.realpath(getattr(sys, '_base_executable', sys.executable))
    bwrap = shutil.which('bwrap') or ''
    seccomp = _filter()
    is_root = os.geteuid() == 0
    missing = [] if bwrap else [_BUBBLEWRAP]
    missing += [] if seccomp else [_LIBSECCOMP]
    missing += [] if shutil.which('prlimit') else [_PRLIMIT]
    missing += [_SETPRIV] if is_root and not shutil.which('setpriv') else []
    return Launcher(
        interpreter=interpreter,
        prefix=sys.base_prefix,
        bwrap=bwrap,
        seccomp=seccomp,
        is_root=is_root,
        missing=tuple(missing),
    )


def user_of(slot: int) -> int:
    """Return the user that a slot of this process gets, where root must give it one.

    Threads are counted by user, so that neighbours must not share one.
    """
    return _FIRST_UID + (os.getpid() * 64 + slot) % _UIDS


def _filter() -> bytes:
    """Return the filter of system calls; empty without libseccomp."""
    if ctypes.util.find_library('seccomp') is None:
        return b''
    # Importing it fails where the library is missing.
    seccomp = importlib.import_module('pyseccomp')
    rules = seccomp.SyscallFilter(seccomp.ALLOW)
    refused = seccomp.ERRNO(errno.EPERM)
    for name in _DENIED_CALLS:
        _deny(rules, refused, name)
    # Threads, but no processes. clone3 hides its flags: without it, clone is used.
    is_process = seccomp.Arg(0, seccomp.MASKED_EQ, _CLONE_THREAD, 0)
    _deny(rules, refused, 'clone', is_process)
    _deny(rules, seccomp.ERRNO(errno.ENOSYS), 'clone3')
    _deny(rules, refused, 'socket', seccomp.Arg(0, seccomp.NE, _AF_UNIX))
    with tempfile.TemporaryFile() as file:
        rules.export_bpf(file)
        file.seek(0)
        return file.read()


def _deny(rules: Any, action: int, name: str, *conditions: Any) -> None:
    try:
        rules.add_rule(action, name, *conditions)
    except (OSError, ValueError):
        # Unknown to this architecture or to this version of the library.
        pass


def _system_folders(prefix: str) -> list[pathlib.Path]:
    """Return what holds the interpreter and its libraries."""
    names = ('/usr', '/lib', '/lib32', '/lib64', '/bin', '/sbin')
    folders = [pathlib.Path(name) for name in names if os.path.lexists(name)]
    return folders if prefix.startswith('/usr') else [*folders, pathlib.Path(prefix)]


def _read_only(source: pathlib.Path, target: pathlib.Path) -> list[str]:
    # Made on the way, the folders above would be open to root alone.
    above = [str(path) for path in reversed(target.parents) if path.name]
    folders = [part for path in above for part in ('--perms', '755', '--dir', path)]
    return [*folders, '--ro-bind', str(source), str(target)]


def _prlimit(limits: Limits) -> list[str]:
    # At the hard limit the kernel kills, whatever the process catches. It counts in
    # ticks, up to a tenth too many: `sandbox` looks at the exact time before that.
    seconds = math.ceil(limits.cpu_seconds) + 1
    return [
        'prlimit',
        f'--cpu={seconds}:{seconds}',
        f'--as={limits.memory_bytes}',
        f'--fsize={limits.output_bytes}',
        f'--nproc={limits.threads}',
        '--nofile=64',
        '--core=0',
        '--memlock=0',
        '--',
    ]
