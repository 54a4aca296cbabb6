"""Worker processes that descend from this one, by way of /proc."""

import os
import pathlib


def workers(*titles):
    """Return the ids of descendants whose title begins with one of `titles`.

    Args:
        *titles: Like `ray::Leader`.
    """
    parents, found = {}, []
    for folder in pathlib.Path('/proc').iterdir():
        if not folder.name.isdigit():
            continue
        try:
            stat = (folder / 'stat').read_text()
            title = (folder / 'cmdline').read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        pid = int(folder.name)
        parents[pid] = int(stat.rsplit(')', 1)[1].split()[1])
        if title.startswith(titles):
            found.append(pid)
    return [pid for pid in found if _descends(pid, parents)]


def _descends(pid, parents):
    while pid in parents and pid != os.getpid():
        pid = parents[pid]
    return pid == os.getpid()
