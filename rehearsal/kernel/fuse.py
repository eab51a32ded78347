# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The FUSE protocol for a :class:`rehearsal.kernel.tree.Tree`, spoken directly on /dev/fuse.

Why not a binding of libfuse: its path-based interface has one cache lifetime for the whole mount. Here the lifetime
must differ by entry: a GID table is read in thousands of small files, so most names must stay cached, while names that
depend on the caller's network namespace must never be. The protocol is kernel ABI (include/uapi/linux/fuse.h, 7.31).

The process id in a request is translated to the PID namespace of the process that opened /dev/fuse (fs/fuse/dev.c).
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import sys
import traceback

from . import linux
from .tree import Caller, Dir, File, Link, Node, Tree

_IN = struct.Struct("=IIQQIIIHH")
_OUT = struct.Struct("=IiQ")
_ATTR = struct.Struct("=6Q10I")
_ENTRY = struct.Struct("=4Q2I")
_ATTR_OUT = struct.Struct("=QII")
_OPEN_OUT = struct.Struct("=QIi")
_READ_IN = struct.Struct("=QQII")
_INIT_OUT = struct.Struct("=4I2H2I2HI28x")
_DIRENT = struct.Struct("=QQII")
_STATFS = struct.Struct("=5Q4I24x")

LOOKUP, FORGET, GETATTR, SETATTR, READLINK, MKDIR, RMDIR = 1, 2, 3, 4, 5, 9, 11
OPEN, READ, WRITE, STATFS, RELEASE, FSYNC, INIT = 14, 15, 16, 17, 18, 20, 26
OPENDIR, READDIR, RELEASEDIR, INTERRUPT, DESTROY, BATCH_FORGET, READDIRPLUS = 27, 28, 29, 36, 38, 42, 44
SYMLINK, MKNOD, UNLINK, RENAME, LINK, CREATE, RENAME2 = 6, 8, 10, 12, 13, 35, 45
_SILENT = {FORGET, BATCH_FORGET, INTERRUPT, DESTROY}
_REFUSED = {SYMLINK, MKNOD, UNLINK, RENAME, LINK, CREATE, RENAME2}

# The target of a link never changes here (another target is another node), so the kernel may keep it.
_ATOMIC_O_TRUNC, _PARALLEL_DIROPS, _CACHE_SYMLINKS = 1 << 3, 1 << 18, 1 << 23
_READDIRPLUS, _READDIRPLUS_AUTO = 1 << 13, 1 << 14
_DIRECT_IO = 1
_MAX_WRITE = 4096
_BUFFER = 1 << 16


class Unmounted(Exception):
    """The file system is not mounted anywhere any more."""


class FuseServer:
    """Answers the requests of one mount. ``fd`` is non-blocking; call :meth:`serve_pending` when it is readable."""

    def __init__(self, tree: Tree, find_netns) -> None:
        self.fd = os.open("/dev/fuse", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self.tree, self.find_netns = tree, find_netns
        self.nodes: dict[int, Node] = {1: tree.root}
        self.counts: dict[int, int] = {1: 1}
        tree.root.number = 1
        self._last_number = 1
        self.handles: dict[int, list] = {}
        self._last_handle = 0
        self.ready = False
        self._operations = {
            LOOKUP: self._lookup,
            GETATTR: self._getattr,
            SETATTR: self._getattr,
            READLINK: self._readlink,
            MKDIR: self._mkdir,
            RMDIR: self._rmdir,
            OPEN: self._open,
            READ: self._read,
            WRITE: self._write,
            STATFS: lambda *_: _STATFS.pack(0, 0, 0, 0, 0, 4096, 255, 4096, 0),
            RELEASE: self._release,
            RELEASEDIR: self._release,
            FSYNC: lambda *_: b"",
            INIT: self._init,
            OPENDIR: self._opendir,
            READDIR: self._readdir,
            READDIRPLUS: self._readdirplus,
        }

    def mount(self, target: str) -> None:
        options = f"fd={self.fd},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions"
        linux.mount("sysfs", target, "fuse.sysfs", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC, options)

    def close(self) -> None:
        os.close(self.fd)

    def serve_pending(self) -> None:
        """Answer all waiting requests. Raises Unmounted at the end of the mount."""
        while True:
            try:
                request = os.read(self.fd, _BUFFER)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.ENODEV:
                    raise Unmounted from None
                if error.errno in (errno.EINTR, errno.ENOENT):  # ENOENT: the request was interrupted meanwhile
                    continue
                raise
            self._answer(request)

    def _answer(self, request: bytes) -> None:
        _size, opcode, unique, number, uid, _gid, pid, _ext, _pad = _IN.unpack_from(request)
        body = request[_IN.size :]
        if opcode in _SILENT:
            if opcode == FORGET:
                self._forget(number, struct.unpack_from("=Q", body)[0])
            elif opcode == BATCH_FORGET:
                for index in range(struct.unpack_from("=I", body)[0]):
                    self._forget(*struct.unpack_from("=QQ", body, 8 + 16 * index))
            return
        try:
            operation = self._operations.get(opcode)
            if operation is None:
                code = errno.EPERM if opcode in _REFUSED else errno.ENOSYS
                raise OSError(code, os.strerror(code))
            node = self.nodes.get(number)
            if node is None and opcode not in (INIT, STATFS):
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
            code, answer = 0, operation(node, Caller(pid, uid, self.find_netns), body)
        except OSError as error:
            code, answer = error.errno or errno.EIO, b""
        except Exception:
            traceback.print_exc(file=sys.stderr)
            code, answer = errno.EIO, b""
        try:
            os.write(self.fd, _OUT.pack(_OUT.size + len(answer), -code, unique) + answer)
        except OSError as error:
            if error.errno != errno.ENOENT:  # the asker is gone
                raise

    # -- names -------------------------------------------------------------------------------------------------------

    def _forget(self, number: int, count: int) -> None:
        left = self.counts.get(number, 0) - count
        if left > 0 or number == 1:
            self.counts[number] = max(left, 1)
        else:
            self.counts.pop(number, None)
            self.nodes.pop(number, None)

    def _number_of(self, node: Node) -> int:
        if not node.number:
            self._last_number += 1
            node.number = self._last_number
        return node.number

    def _attributes(self, node: Node) -> bytes:
        size = 4096 if isinstance(node, File) else 0
        links = 2 if isinstance(node, Dir) else 1
        number = self._number_of(node)
        return _ATTR.pack(number, size, 0, 0, 0, 0, 0, 0, 0, node.mode, links, 0, 0, 0, 4096, 0)

    @staticmethod
    def _time(lifetime: float) -> tuple[int, int]:
        return int(lifetime), int(lifetime % 1 * 1e9)

    def _entry(self, node: Node) -> bytes:
        number = self._number_of(node)
        self.nodes[number] = node
        self.counts[number] = self.counts.get(number, 0) + 1
        seconds, nanoseconds = self._time(node.lifetime)
        head = _ENTRY.pack(number, 0, seconds, seconds, nanoseconds, nanoseconds)
        return head + self._attributes(node)

    def _lookup(self, node: Node, caller: Caller, body: bytes) -> bytes:
        name = os.fsdecode(body.rstrip(b"\0"))
        child = node.child(name, caller) if isinstance(node, Dir) else None
        if child is None:
            raise OSError(errno.ENOENT, name)
        return self._entry(child)

    def _present(self, node: Node, caller: Caller) -> None:
        if not node.seen_by(caller):
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))

    def _getattr(self, node: Node, caller: Caller, _body: bytes) -> bytes:
        self._present(node, caller)
        return _ATTR_OUT.pack(*self._time(node.lifetime), 0) + self._attributes(node)

    def _readlink(self, node: Node, caller: Caller, _body: bytes) -> bytes:
        self._present(node, caller)
        if not isinstance(node, Link):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return os.fsencode(node.read(caller))

    def _mkdir(self, node: Dir, caller: Caller, body: bytes) -> bytes:
        return self._entry(node.make_dir(os.fsdecode(body[8:].rstrip(b"\0")), caller))

    def _rmdir(self, node: Dir, caller: Caller, body: bytes) -> bytes:
        node.remove_dir(os.fsdecode(body.rstrip(b"\0")), caller)
        return b""

    # -- content -----------------------------------------------------------------------------------------------------

    def _handle(self, content) -> bytes:
        self._last_handle += 1
        self.handles[self._last_handle] = content
        return _OPEN_OUT.pack(self._last_handle, _DIRECT_IO, 0)

    def _open(self, node: Node, caller: Caller, body: bytes) -> bytes:
        self._present(node, caller)
        flags = struct.unpack_from("=I", body)[0] & os.O_ACCMODE
        # As in kernfs_fop_open: even root may not write to a file that has no store function.
        writes, reads = flags in (os.O_WRONLY, os.O_RDWR), flags in (os.O_RDONLY, os.O_RDWR)
        if isinstance(node, File) and ((writes and node.store is None) or (reads and node.content is None)):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        return self._handle(b"")

    def _read(self, node: File, caller: Caller, body: bytes) -> bytes:
        handle, offset, size, _flags = _READ_IN.unpack_from(body)
        if offset == 0 or handle not in self.handles:
            self.handles[handle] = node.read(caller)
        return self.handles[handle][offset : offset + size]

    def _write(self, node: File, caller: Caller, body: bytes) -> bytes:
        _handle, _offset, size, _flags = _READ_IN.unpack_from(body)
        node.write(caller, body[40 : 40 + size])
        return struct.pack("=II", size, 0)

    def _release(self, _node: Node, _caller: Caller, body: bytes) -> bytes:
        self.handles.pop(struct.unpack_from("=Q", body)[0], None)
        return b""

    def _opendir(self, node: Dir, caller: Caller, _body: bytes) -> bytes:
        self._present(node, caller)
        return self._handle([(".", node), ("..", node), *node.entries(caller)])

    def _dirent(self, name: str, child: Node, offset: int) -> bytes:
        encoded = os.fsencode(name)
        record = _DIRENT.pack(self._number_of(child), offset, len(encoded), stat.S_IFMT(child.mode) >> 12) + encoded
        return record + b"\0" * (-len(record) % 8)

    def _readdir(self, _node: Dir, _caller: Caller, body: bytes) -> bytes:
        handle, start, size, _flags = _READ_IN.unpack_from(body)
        answer = b""
        for offset, (name, child) in enumerate(self.handles.get(handle, [])[start:], start + 1):
            record = self._dirent(name, child, offset)
            if len(answer) + len(record) > size:
                break
            answer += record
        return answer

    def _readdirplus(self, _node: Dir, _caller: Caller, body: bytes) -> bytes:
        """Names together with what a lookup of each would say: saves the kernel one request a GID row."""
        handle, start, size, _flags = _READ_IN.unpack_from(body)
        records, length = [], 0
        for offset, (name, child) in enumerate(self.handles.get(handle, [])[start:], start + 1):
            record = self._dirent(name, child, offset)
            length += _ENTRY.size + _ATTR.size + len(record)
            if length > size:
                break
            # The two dots are no lookups: node number 0 says so.
            entry = bytes(_ENTRY.size + _ATTR.size) if name in (".", "..") else self._entry(child)
            records.append(entry + record)
        return b"".join(records)

    def _init(self, _node: Node, _caller: Caller, body: bytes) -> bytes:
        major, minor, readahead, flags = struct.unpack_from("=4I", body)
        if major != 7 or minor < 31:
            raise OSError(errno.EPROTO, f"FUSE protocol {major}.{minor}: 7.31 or newer is needed (Linux 5.2)")
        self.ready = True
        wanted = flags & (_ATOMIC_O_TRUNC | _PARALLEL_DIROPS | _CACHE_SYMLINKS | _READDIRPLUS | _READDIRPLUS_AUTO)
        return _INIT_OUT.pack(7, 31, readahead, wanted, 12, 9, _MAX_WRITE, 1, 1, 0, 0)
