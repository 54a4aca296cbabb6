"""Solutions that try to cheat the code verifier or to harm the machine.

`FORGERIES` want a verdict that they do not deserve: each stands with the test that it
attacks, which no honest solution of that form passes. `BREAKOUTS` are programs that try
what the sandbox forbids and print `HELD` if they could not; anything else is a breach.
`BURDENS` are programs that only use up what they are given, with the result codes that
they may get.
"""

SECRET = 'secret-41c8'
"""In tests, files, variables and sockets that no solution may reach."""

TEST = f"assert f(3) == '{SECRET}'"

_EQUAL = """
class Equal{base}:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __bool__(self): return True
def f(x): return Equal({argument})
"""

_SEARCH = f"""
import gc, os, sys
def found():
    texts = [o for o in gc.get_objects() if isinstance(o, (str, bytes))]
    frame = sys._getframe()
    while frame:
        texts += [repr(frame.f_locals), repr(frame.f_globals)]
        frame = frame.f_back
    for folder, _, names in os.walk('/proc/self'):
        for name in names:
            try: texts.append(open(os.path.join(folder, name), 'rb').read(1 << 16))
            except (OSError, ValueError): pass
    for text in texts:
        text = text.decode('latin1') if isinstance(text, bytes) else text
        if 'secret-' in text[:1 << 16] and '41c8' in text:
            start = text.index('secret-')
            return text[start:start + {len(SECRET)}]
"""

FORGERIES = {
    'object_equal_to_all': (TEST, _EQUAL.format(base='', argument='')),
    'text_equal_to_all': (TEST, _EQUAL.format(base='(str)', argument='"x"')),
    'number_equal_to_all': (
        'assert f(3) == 41',
        _EQUAL.format(base='(int)', argument=1),
    ),
    'list_equal_to_all': (
        'assert f(3) == [1]',
        _EQUAL.format(base='(list)', argument=''),
    ),
    'tuple_equal_to_all': (
        'assert f(3) == (1,)',
        _EQUAL.format(base='(tuple)', argument=''),
    ),
    'lies_about_its_class': (
        TEST,
        'class A:\n  __class__ = str\n  def __eq__(s, o): return True\n'
        'def f(x): return A()',
    ),
    'equal_inside_a_list': (
        'assert f(3) == [41]',
        _EQUAL.format(base='(int)', argument=1) + 'g = f\ndef f(x): return [g(x)]',
    ),
    'exits_with_success_when_loaded': (TEST, 'import os; os._exit(0)'),
    'exits_with_success_when_called': (TEST, 'import os\ndef f(x): os._exit(0)'),
    'raises_system_exit': (TEST, 'def f(x): raise SystemExit(0)'),
    'an_exception_named_system_exit': (
        TEST,
        'class SystemExit(Exception): pass\ndef f(x): raise SystemExit(0)',
    ),
    'ends_an_iteration': (
        'assert list(map(f, [1, 2])) == []',
        'def f(x): raise StopIteration',
    ),
    'ends_a_generator': (
        'assert all(f(x) == 41 for x in [1, 2])',
        'def f(x): raise GeneratorExit',
    ),
    'raises_what_the_test_handles': (
        'try:\n  assert f(3) == 41\nexcept:\n  pass',
        'import os\ndef f(x): os._exit(0)',
    ),
    'replaces_all': ('assert all([f(3) == 41])', 'def all(x): return True\nf = id'),
    'replaces_set': (
        'assert set(f(3)) == set([41])',
        'def set(x): return 1\ndef f(x): return [2]',
    ),
    'replaces_a_module': (
        'assert math.isclose(f(3), 41)',
        'class math:\n  isclose = lambda *a: True\nf = abs',
    ),
    'patches_builtins': (
        TEST,
        'import builtins\nbuiltins.AssertionError = builtins.compile = print\n'
        'builtins.__import__ = builtins.isinstance = lambda *a: True\n'
        'def f(x): return None',
    ),
    'patches_the_harness': (
        TEST,
        'import json, sys\nfor m in list(sys.modules.values()):\n'
        '  for n in ("encode", "dumps"):\n'
        '    if hasattr(m, n): setattr(m, n, lambda *a: \'{"verdict": "passed"}\')\n'
        'def f(x): return 1',
    ),
    'reports_its_own_verdict': (
        TEST,
        'import json, os\nfor fd in range(3, 64):\n'
        '  try: os.write(fd, b\'{"verdict": "passed"}\\n\'); os.lseek(fd, 0, 0)\n'
        '  except OSError: pass\ndef f(x): return 1',
    ),
    'answers_unasked': (
        TEST,
        'import os\nfor fd in range(3, 64):\n'
        '  try: os.write(fd, b\'{"value": true}\\n\' * 9)\n'
        '  except OSError: pass\ndef f(x): return 1',
    ),
    'answers_nonsense': (
        TEST,
        'import os\nfor fd in range(3, 64):\n'
        '  try: os.write(fd, b\'{"value": {"object": [0, true, 1]}}\\n\')\n'
        '  except OSError: pass\ndef f(x): return 1',
    ),
    'closes_everything': (TEST, 'import os; os.closerange(0, 64)'),
    'searches_for_the_answer': (TEST, _SEARCH + 'def f(x): return found()'),
    'searches_when_loaded': (TEST, _SEARCH + 'y = found()\ndef f(x): return y'),
    'empties_what_it_is_compared_with': (
        'xs = [3, 1]\nassert f(xs) == sorted(xs)',
        'def f(x):\n  x.clear()\n  return []',
    ),
    'returns_a_bottomless_list': (
        TEST,
        'def f(x):\n  y = []\n  for _ in range(10**5): y = [y]\n  return y',
    ),
    'returns_too_much': (TEST, 'def f(x): return "x" * (1 << 28)'),
    'returns_itself': (TEST, 'def f(x):\n  y = []\n  y.append(y)\n  return y'),
    'proxy_of_a_truth': ('assert f(3) is True', _EQUAL.format(base='', argument='')),
}
"""Name: (test, solution)."""

_TRY = """
import ctypes, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def held(function, *arguments):
    try: result = function(*arguments)
    except (OSError, ValueError): return
    if result != -1: print('BREACH', function, arguments, result)
def held_open(path, mode='w'):
    try: open(path, mode).close()
    except OSError: return
    print('BREACH', path)
"""

BREAKOUTS = {
    'reads_the_environment': f"""
text = repr(os.environ) + open('/proc/self/environ').read()
if '{SECRET}' in text or 'HOME' in text: print('BREACH', text)
""",
    'reads_a_file_of_the_host': "held_open('{file}', 'r')",
    'reads_through_a_symbolic_link': """
os.symlink('{file}', '/tmp/link')
held_open('/tmp/link', 'r')
""",
    'reads_through_a_hard_link': "held(os.link, '{file}', '/tmp/link')",
    'reads_through_proc': """
for pid in os.listdir('/proc'):
    if pid.isdigit() and int(pid) > 1: print('BREACH', pid)
held_open('/proc/1/root/{file}', 'r')
held_open('/proc/self/cwd/../{file}', 'r')
""",
    'reads_secrets_of_the_system': """
for path in ('/etc/shadow', '/etc/passwd', '/root/.ssh', '/var/log', '/home'):
    if os.path.exists(path): print('BREACH', path)
""",
    'reads_memory_and_kernel': """
for path in ('/dev/mem', '/dev/kmsg', '/dev/kvm', '/dev/vda', '/proc/kcore'):
    held_open(path, 'rb')
""",
    'writes_outside': """
for folder in ('', '/usr', '/usr/lib', '/bin', '/guest', '/dev', '/dev/shm', '/proc',
               '/guest/unimas_jax/tools', sys.base_prefix, sys.prefix + '/lib'):
    held_open(folder + '/new')
held_open(os.__file__, 'a')
""",
    'writes_kernel_settings': """
for path in ('/proc/sys/kernel/core_pattern', '/proc/sysrq-trigger',
             '/proc/sys/vm/overcommit_memory'):
    held_open(path)
""",
    'remounts': """
held(libc.mount, None, b'/', None, 32, None)
held(libc.mount, b'none', b'/tmp', b'tmpfs', 0, None)
held(libc.umount2, b'/tmp', 2)
held(os.chroot, '/tmp')
""",
    'makes_namespaces': """
for flag in (0x10000000, 0x20000000, 0x40000000, 0x00020000):
    held(libc.unshare, flag)
""",
    'enters_namespaces': """
for name in ('net', 'pid', 'mnt', 'user'):
    held(libc.setns, os.open('/proc/self/ns/' + name, os.O_RDONLY), 0)
""",
    'becomes_root': """
if os.geteuid() == 0 and open('/proc/self/uid_map').read().split()[1:2] == ['0']:
    print('BREACH')
for function in (os.setuid, os.setgid):
    if os.getuid(): held(function, 0)
if any(int(line.split()[1], 16) for line in open('/proc/self/status')
       if line.startswith('Cap')): print('BREACH')
held(libc.capset, None, None)
""",
    'connects_to_the_host': """
held(socket.create_connection, ('127.0.0.1', {port}), 1)
""",
    'connects_to_the_internet': """
for address in (('1.1.1.1', 53), ('169.254.169.254', 80)):
    held(socket.create_connection, address, 1)
""",
    'connects_to_a_socket_of_the_host': r"""
with socket.socket(socket.AF_UNIX) as s: held(s.connect, '\0{abstract}')
""",
    'opens_other_kinds_of_sockets': """
for family in (2, 10, 16, 17, 38, 40): held(libc.socket, family, 1, 0)
for family in (2, 16, 17): held(libc.socket, family, 3, 0)
""",
    'forks': 'held(os.fork)\nheld(libc.fork)\nheld(libc.vfork)',
    'starts_a_program': """
import subprocess
held(subprocess.Popen, ['/bin/true'])
held(os.posix_spawn, '/bin/true', ['true'], {})
held(os.system, 'true') if os.system('true') == 0 else None
""",
    'clones': """
if os.uname().machine == 'x86_64':
    held(libc.syscall, 56, 17, 0, 0, 0, 0)
held(libc.syscall, 435, 0, 0)
""",
    'forks_through_multiprocessing': """
import multiprocessing
held(multiprocessing.get_context('fork').Process(target=print).start)
""",
    'kills_others': """
import signal
for pid in (2, 3, os.getppid() or 99, {pid}):
    held(os.kill, pid, signal.SIGKILL)
""",
    'traces': 'held(libc.ptrace, 16, {pid}, 0, 0)\nheld(libc.ptrace, 0, 0, 0, 0)',
    'reads_memory_of_others': """
held(libc.process_vm_readv, {pid}, None, 0, None, 0, 0)
held_open('/proc/{pid}/mem', 'rb')
""",
    'raises_its_limits': """
import resource
for name in ('AS', 'CPU', 'FSIZE', 'NPROC', 'NOFILE', 'CORE'):
    held(resource.setrlimit, getattr(resource, 'RLIMIT_' + name), (1 << 40, 1 << 40))
""",
    'takes_priority': """
held(os.nice, -5)
held(os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(1))
""",
    'allocates_where_no_limit_counts': """
held(os.memfd_create, 'x')
held(libc.shmget, 0, 1 << 20, 0o1600)
held(libc.mq_open, b'/x', 0o102, 0o600, None)
""",
    'reaches_for_kernel_interfaces': """
held(libc.syscall, 425, 8, None)
held(libc.keyctl, 0, 0, 0, 0, 0) if hasattr(libc, 'keyctl') else None
if os.uname().machine == 'x86_64':
    for number in (321, 298, 323, 250, 248, 304, 175, 246, 169):
        held(libc.syscall, number, 0, 0, 0, 0, 0)
""",
    'types_into_the_terminal': """
import fcntl
held_open('/dev/tty', 'rb')
for fd in (0, 1, 2): held(fcntl.ioctl, fd, 0x5412, b'x')
""",
    'leaves_a_privileged_file': """
open('/tmp/x', 'w').close()
os.chmod('/tmp/x', 0o6777)
held(os.chown, '/tmp/x', 0, 0) if os.getuid() else None
held(os.mknod, '/tmp/device', 0o60600, os.makedev(8, 0))
""",
    'uses_files_of_the_harness': """
for fd in range(3, 64):
    try: text = os.pread(fd, 1 << 16, 0)
    except OSError: continue
    if b'secret-' in text.replace(b'secret-\\'', b''): print('BREACH', fd)
""",
}
"""Name: program after `_TRY`, which `{...}` tells what to reach for."""

BREAKOUTS = {name: f'{_TRY}\n{code}' for name, code in BREAKOUTS.items()}

BURDENS = {
    'never_ends': ('while True: pass', ('time_limit',)),
    'catches_every_signal': (
        'import signal\n'
        'for s in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:\n'
        '  signal.signal(s, lambda *a: None)\n'
        'while True:\n  try:\n    while True: pass\n  except BaseException: pass',
        ('time_limit',),
    ),
    'sleeps': ('import time; time.sleep(1000)', ('time_limit',)),
    'sleeps_in_a_thread': (
        'from threading import Thread\nimport time\n'
        'Thread(target=time.sleep, args=(99,)).start()',
        ('time_limit',),
    ),
    'never_leaves': (
        'import atexit, time\natexit.register(time.sleep, 1000)',
        ('time_limit',),
    ),
    'computes_in_threads': (
        'import threading\ndef f():\n  while True: pass\n'
        'for _ in range(8): threading.Thread(target=f).start()',
        ('time_limit',),
    ),
    'memory_at_once': ('x = bytearray(1 << 34)', ('memory_limit',)),
    'memory_by_and_by': (
        'x = []\nwhile True: x.append(bytearray(1 << 24))',
        # Where memory is slow, the time is up first.
        ('memory_limit', 'time_limit'),
    ),
    'memory_by_mapping': (
        'import mmap\nx = []\nwhile True: x.append(mmap.mmap(-1, 1 << 26))',
        ('run_time_error',),
    ),
    'threads_without_end': (
        'import threading, time\nthreading.stack_size(1 << 15)\n'
        'while True: threading.Thread(target=time.sleep, args=(99,)).start()',
        ('run_time_error', 'time_limit'),
    ),
    'output_without_end': ('while True: print("x" * (1 << 16))', ('run_time_error',)),
    'errors_without_end': (
        'import os\nwhile True: os.write(2, b"x" * (1 << 16))',
        ('run_time_error',),
    ),
    'fills_its_folder': (
        'i = 0\nwhile True:\n  open(f"/tmp/{i}", "w").write("x" * (1 << 20)); i += 1',
        ('run_time_error',),
    ),
    'opens_files_without_end': (
        'x = []\nwhile True: x.append(open("/dev/null"))',
        ('run_time_error',),
    ),
    'crashes': ('import ctypes; ctypes.string_at(0)', ('run_time_error',)),
    'recurses': ('def f(): f()\nf()', ('run_time_error',)),
    'pretends_to_run_out_of_memory': ('import os; os._exit(87)', ('memory_limit',)),
    'fails_quietly': ('import os; os._exit(3)', ('run_time_error',)),
}
"""Name: (program, result codes that are right)."""
