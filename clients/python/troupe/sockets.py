"""Where servers listen, and whether one is the server that is meant. As the C++ library does it (docs/protocol.md)."""
from __future__ import annotations

import errno
import os
import socket
import stat
import struct
from collections import deque

from .errors import UntrustedServer

_SYSTEM = "/run/troupe/troupe.sock"
_MAX_PATH = 107   # sun_path of unix(7), less its terminating zero
_MAX_LINKS = 40   # the kernel's own bound (path_resolution(7))


def candidates() -> list[str]:
    """The paths to try, in this order."""
    host = os.environ.get("TROUPE_HOST", "")
    if host:
        path = host.removeprefix("unix://")
        if not path.startswith("/"):
            raise ValueError(f"TROUPE_HOST is {host}; it must be unix:/// and the absolute path of a socket")
        return [path]
    paths = []
    runtime = _runtime_directory()
    if runtime:
        paths.append(runtime + "/troupe/troupe.sock")
    home = _home_socket()
    if home:
        paths.append(home)
    return [*paths, _SYSTEM]


def check_server(connected: socket.socket, path: str) -> None:
    """Raises UntrustedServer unless the server was started by this user or root, or by the owner of the socket's directory
    where no other user can write to it and to those above."""
    uid: int = struct.unpack("3i", connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
    if uid in (0, os.geteuid()):
        return
    server = f"the server at {path} runs as uid {uid}"
    try:
        directory, status = _walk(path, {0, os.geteuid(), uid}, allow_sticky=True)
    except PermissionError as error:
        raise UntrustedServer(f"{server}, and {error}") from None
    if not _others_may_write(status) or status.st_uid == uid:
        return
    raise UntrustedServer(f"{server}, which is neither you nor root nor the owner of {directory} (uid {status.st_uid}), where "
                          "everybody may make a socket: it may not be the server that you mean (strict_modes=False "
                          "accepts it)")


def check_path(path: str) -> None:
    """Raises ValueError for what cannot be a socket's path."""
    size = len(os.fsencode(path))
    if not path or "\0" in path or size > _MAX_PATH:
        raise ValueError(f"a socket's path has 1 to {_MAX_PATH} bytes, none of them zero; this one has {size}: {path!r}")


def _runtime_directory() -> str | None:
    named = os.environ.get("XDG_RUNTIME_DIR", "")
    if named:
        try:
            another = os.stat(named).st_uid != os.geteuid()  # as after su
        except OSError:
            another = False
        if not another or os.geteuid() == 0:
            return named
    usual = f"/run/user/{os.geteuid()}"
    return usual if os.path.isdir(usual) else None


def _home_socket() -> str | None:
    home, host = os.environ.get("HOME", ""), socket.gethostname()
    if os.geteuid() == 0 or not home.startswith("/") or not host or "/" in host:
        return None
    try:
        _, status = _walk(home, {0, os.geteuid()}, allow_sticky=False)
    except OSError:
        return None
    path = f"{home}/.troupe/{host}.sock"
    return path if status.st_uid == os.geteuid() and len(os.fsencode(path)) <= _MAX_PATH else None


def _others_may_write(status: os.stat_result) -> bool:
    return bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def _walk(path: str, trusted: set[int], allow_sticky: bool) -> tuple[str, os.stat_result]:
    """Resolves a path as the kernel does. The last directory on it; PermissionError if another user than the trusted ones
    could replace a directory or link on the way."""
    at, status, num_links = "/", _checked("/", os.lstat("/"), trusted, allow_sticky), 0
    left = deque(os.path.abspath(path).split("/")) if not os.path.isabs(path) else deque(path.split("/"))
    while left:
        name = left.popleft()
        if name in ("", "."):
            continue
        there = os.path.dirname(at) if name == ".." else os.path.join(at, name)
        found = os.lstat(there)
        if stat.S_ISLNK(found.st_mode):
            _check_owner(there, found, trusted)
            num_links += 1
            if num_links > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), there)
            target = os.readlink(there)
            left.extendleft(reversed(target.split("/")))
            if target.startswith("/"):
                at, status = "/", os.lstat("/")
        elif stat.S_ISDIR(found.st_mode):
            at, status = there, _checked(there, found, trusted, allow_sticky)
        elif any(rest not in ("", ".") for rest in left):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), there)
    return at, status


def _checked(path: str, status: os.stat_result, trusted: set[int], allow_sticky: bool) -> os.stat_result:
    _check_owner(path, status, trusted)
    if _others_may_write(status) and not (allow_sticky and status.st_mode & stat.S_ISVTX):
        raise PermissionError(f"others can write to {path} (mode {stat.S_IMODE(status.st_mode):04o}), on the way to the "
                              "socket, and could put another one in its place")
    return status


def _check_owner(path: str, status: os.stat_result, trusted: set[int]) -> None:
    if status.st_uid not in trusted:
        raise PermissionError(f"{path}, on the way to the socket, belongs to uid {status.st_uid}, which could put another "
                              "one in its place")
