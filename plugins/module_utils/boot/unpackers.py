# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Unpackers of the compressions that a kernel takes for its boot image.

For each compression the first of these that is there: this Python's standard library (gzip, bzip2, xz, lzma, zstd from
Python 3.14), the system's shared library through ctypes (libzstd, liblz4, liblzo2: dpkg, rpm and systemd link them, so
practically every distribution has the first two), and the program as a filter (``zstd -dc``). Where none is there the
image is unreadable here, which says nothing about the image.

All of them stream: memory is bounded by the window of the format (128 MiB at most), the time by the caller's budget.
"""

from __future__ import annotations

import bz2
import contextlib
import ctypes
import lzma
import shutil
import subprocess
import threading
import weakref
import zlib
from collections.abc import Iterator
from typing import Any, Callable

from ansible_collections.railyard.rdma.plugins.module_utils.boot import frame_walkers
from ansible_collections.railyard.rdma.plugins.module_utils.boot.byte_stream import (
    CHUNK,
    DamagedImage,
    Stream,
    UnreadableImage,
)

try:
    from compression import zstd  # Python 3.14
except ImportError:
    zstd = None

_LZMA_MEMORY = 192 << 20
_PROGRAM_SECONDS = 600
_MAGIC = (
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\0", "xz"),
    (b"\x5d\0\0", "lzma"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (frame_walkers.LZ4_LEGACY_MAGIC, "lz4"),  # the only form of lz4 that the kernel takes
    (b"\x04\x22\x4d\x18", "lz4-frame"),
    (b"\x89LZO", "lzo"),
)
_WALKERS = {
    "zstd": (frame_walkers.zstd, ("zstd", "-dcq")),
    "lz4": (frame_walkers.lz4_legacy, ("lz4", "-dcq")),
    "lz4-frame": (frame_walkers.lz4, ("lz4", "-dcq")),
    "lzo": (frame_walkers.lzo, ("lzop", "-dcq")),
}
_LIBRARIES = {"zstd": "libzstd.so.1", "lz4": "liblz4.so.1", "lz4-frame": "liblz4.so.1", "lzo": "liblzo2.so.2"}


def compression_of(head: bytes) -> str | None:
    """Return the name of the compression whose magic number these bytes (6 or more) start with, or None."""
    return next((name for magic, name in _MAGIC if head.startswith(magic)), None)


@contextlib.contextmanager
def unpacked(stream: Stream, name: str) -> Iterator[Callable[[], bytes]]:
    """Unpack one compressed part.

    :param stream: stands at the start of the part, and behind it when the last byte was given.
    :param name: as :func:`compression_of` returns it.
    :returns: (as a context) a function that gives the next unpacked bytes, b"" at the end.
    :raises UnreadableImage: also while the function runs; ``damaged`` tells whether the data is at fault.
    """
    decoder = _decoder(name)
    if decoder is not None:
        yield _puller(stream, name, decoder)
        return
    walker, command = _WALKERS[name]
    program = shutil.which(command[0], path="/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/bin")
    if program is None:
        raise UnreadableImage(
            f"compressed with {name}: this Python cannot unpack it, and neither {_LIBRARIES[name]} nor the program "
            f"{command[0]} is installed"
        )
    pieces = _through_program(stream, name, [program, *command[1:]], walker)
    try:
        yield lambda: next(pieces, b"")
    finally:
        pieces.close()


def _decoder(name: str) -> Any:
    """Return an object with the methods of bz2.BZ2Decompressor, or None when neither Python nor a library has it."""
    if name == "gzip":
        return _Gzip()
    if name == "bzip2":
        return bz2.BZ2Decompressor()
    if name in ("xz", "lzma"):
        return lzma.LZMADecompressor(lzma.FORMAT_XZ if name == "xz" else lzma.FORMAT_ALONE, memlimit=_LZMA_MEMORY)
    if name == "zstd" and zstd is not None:
        return zstd.ZstdDecompressor()
    library = _load(_LIBRARIES[name])
    if library is None:
        return None
    return {"zstd": _LibraryZstd, "lz4": _LegacyLz4, "lz4-frame": _LibraryLz4, "lzo": _Lzo}[name](library)


def _load(name: str) -> Any:
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None


def _puller(stream: Stream, name: str, decoder: Any) -> Callable[[], bytes]:
    errors = (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError) + ((zstd.ZstdError,) if zstd else ())

    def pull() -> bytes:
        while not decoder.eof:
            hungry = decoder.needs_input
            packed = stream.some() if hungry else b""
            try:
                data = decoder.decompress(packed, CHUNK)
            except errors as error:
                if "emory usage limit" in str(error):
                    raise UnreadableImage(f"its {name} data needs more memory than {_LZMA_MEMORY >> 20} MiB") from error
                raise DamagedImage(f"damaged {name} data: {error}") from error
            if decoder.eof:
                stream.give_back(decoder.unused_data)
            elif hungry and not packed and not data:
                raise DamagedImage(f"cut short: it ends within {name} data")
            if data:
                return data
        return b""

    return pull


class _Gzip:
    """zlib's decompressor, as the other modules of Python have it."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(31)

    eof = property(lambda self: self._inner.eof)
    unused_data = property(lambda self: self._inner.unused_data)
    needs_input = property(lambda self: not self._inner.unconsumed_tail)

    def decompress(self, data: bytes, size: int) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail or data, size)


class _Buffer(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("size", ctypes.c_size_t), ("position", ctypes.c_size_t))


class _Library:
    """What decoders over a shared library share: the input not yet consumed, and one output buffer."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._input = b""
        self._output = ctypes.create_string_buffer(CHUNK)
        self.eof = False
        self.needs_input = True

    @property
    def unused_data(self) -> bytes:
        return self._input

    def decompress(self, data: bytes, _size: int) -> bytes:
        self._input += data
        remaining, used, written = self._step()
        self._input = self._input[used:]
        self.eof = remaining == 0
        self.needs_input = not self._input and written < CHUNK
        if not (self.eof or used or written) and self._input:
            raise ValueError("no progress")
        return ctypes.string_at(self._output, written)

    def _step(self) -> tuple[int, int, int]:
        """Decode once; returns ``(what the library returned: 0 at the frame's end, bytes used, bytes written)``."""
        raise NotImplementedError


class _LibraryZstd(_Library):
    """libzstd's streaming decoder (zstd.h). A frame that wants a larger window than the kernel takes is an error."""

    def __init__(self, library: Any) -> None:
        super().__init__(library)
        library.ZSTD_createDStream.restype = ctypes.c_void_p
        library.ZSTD_freeDStream.argtypes = [ctypes.c_void_p]
        library.ZSTD_decompressStream.restype = ctypes.c_size_t
        library.ZSTD_decompressStream.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        library.ZSTD_isError.argtypes = [ctypes.c_size_t]
        library.ZSTD_getErrorName.argtypes = [ctypes.c_size_t]
        library.ZSTD_getErrorName.restype = ctypes.c_char_p
        self._handle = library.ZSTD_createDStream()
        if not self._handle:
            raise UnreadableImage("libzstd has no memory")
        weakref.finalize(self, library.ZSTD_freeDStream, self._handle)

    def _step(self) -> tuple[int, int, int]:
        output = _Buffer(ctypes.addressof(self._output), CHUNK, 0)
        source = _Buffer(ctypes.cast(self._input, ctypes.c_void_p), len(self._input), 0)
        code = self._library.ZSTD_decompressStream(self._handle, ctypes.byref(output), ctypes.byref(source))
        if self._library.ZSTD_isError(code):
            raise ValueError(self._library.ZSTD_getErrorName(code).decode())
        return code, source.position, output.position


class _LibraryLz4(_Library):
    """liblz4's decoder of the frame format (lz4frame.h)."""

    def __init__(self, library: Any) -> None:
        super().__init__(library)
        library.LZ4F_createDecompressionContext.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint]
        library.LZ4F_createDecompressionContext.restype = ctypes.c_size_t
        library.LZ4F_freeDecompressionContext.argtypes = [ctypes.c_void_p]
        size = ctypes.POINTER(ctypes.c_size_t)
        library.LZ4F_decompress.argtypes = [ctypes.c_void_p, ctypes.c_void_p, size, ctypes.c_char_p, size]
        library.LZ4F_decompress.argtypes += [ctypes.c_void_p]
        library.LZ4F_decompress.restype = ctypes.c_size_t
        library.LZ4F_isError.argtypes = [ctypes.c_size_t]
        library.LZ4F_getErrorName.argtypes = [ctypes.c_size_t]
        library.LZ4F_getErrorName.restype = ctypes.c_char_p
        handle = ctypes.c_void_p()
        if library.LZ4F_isError(library.LZ4F_createDecompressionContext(ctypes.byref(handle), 100)):
            raise UnreadableImage("liblz4 has no memory")
        self._handle = handle
        weakref.finalize(self, library.LZ4F_freeDecompressionContext, handle)

    def _step(self) -> tuple[int, int, int]:
        written, used = ctypes.c_size_t(CHUNK), ctypes.c_size_t(len(self._input))
        code = self._library.LZ4F_decompress(
            self._handle, self._output, ctypes.byref(written), self._input, ctypes.byref(used), None
        )
        if self._library.LZ4F_isError(code):
            raise ValueError(self._library.LZ4F_getErrorName(code).decode())
        return code, used.value, written.value


class _Blocks:
    """A format of blocks, each decoded as a whole. ``_blocks`` is fed through a stream of its own that asks for more
    input by running dry, so the caller's loop stays the same for all decoders."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._input = bytearray()
        self._output = ctypes.create_string_buffer(1)
        self.eof = False
        self.needs_input = True

    @property
    def unused_data(self) -> bytes:
        return bytes(self._input)

    def decompress(self, data: bytes, _size: int) -> bytes:
        self._input += data
        used, unpacked_data, self.eof = self._block(at_end=self.needs_input and not data)
        del self._input[:used]
        self.needs_input = not used and not self.eof
        return unpacked_data

    def _buffer(self, size: int) -> Any:
        """Return an output buffer of ``size`` bytes or more; one of 8 MiB takes longer to make than a block to unpack,
        so it is kept."""
        if len(self._output) < size:
            self._output = ctypes.create_string_buffer(size)
        return self._output

    def _block(self, at_end: bool) -> tuple[int, bytes, bool]:
        """Decode what stands first in the input; returns ``(bytes used, data, ended)``, nothing used meaning that
        more input is needed."""
        raise NotImplementedError


class _LegacyLz4(_Blocks):
    """Blocks of liblz4 behind each other, each with its size in front (``lz4 -l``, lib/decompress_unlz4.c)."""

    def __init__(self, library: Any) -> None:
        super().__init__(library)
        library.LZ4_decompress_safe.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int]

    def _block(self, at_end: bool) -> tuple[int, bytes, bool]:
        head = bytes(self._input[:4])
        if len(head) < 4:
            return 0, b"", at_end
        size = int.from_bytes(head, "little")
        if head == frame_walkers.LZ4_LEGACY_MAGIC:
            return 4, b"", False
        if size == 0 or size > frame_walkers.LZ4_LEGACY_LARGEST:
            return 0, b"", True  # no block: padding, or the next archive
        if len(self._input) < 4 + size:
            return 0, b"", False
        packed = bytes(self._input[4 : 4 + size])
        # No byte of a block stands for more than 255.
        output = self._buffer(min(255 * size, frame_walkers.LZ4_LEGACY_BLOCK))
        written = self._library.LZ4_decompress_safe(packed, output, size, len(output))
        if written < 0:
            raise ValueError("a block cannot be unpacked")
        return 4 + size, ctypes.string_at(output, written), False


class _Lzo(_Blocks):
    """lzop's file format with the blocks decoded by liblzo2 (lzo1x.h) and the checksums checked."""

    def __init__(self, library: Any) -> None:
        super().__init__(library)
        function = library.lzo1x_decompress_safe
        function.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)]
        function.argtypes += [ctypes.c_void_p]
        self._flags: int | None = None

    def _block(self, at_end: bool) -> tuple[int, bytes, bool]:
        pending = iter((bytes(self._input),))
        stream = Stream(lambda: next(pending, b""), len(self._input))
        try:
            if self._flags is None:
                raw, self._flags = frame_walkers.lzo_header(stream)
                return len(raw), b"", False
            block = next(frame_walkers.lzo_blocks(stream, self._flags))
        except DamagedImage as error:
            if str(error).startswith("cut short"):
                return 0, b"", False
            raise
        return len(block.raw), self._decode(block), not block.size

    def _decode(self, block: frame_walkers.LzoBlock) -> bytes:
        data = block.data
        if not block.stored:
            output, size = self._buffer(block.size), ctypes.c_size_t(block.size)
            code = self._library.lzo1x_decompress_safe(data, len(data), output, ctypes.byref(size), None)
            if code != 0 or size.value != block.size:
                raise ValueError("a block cannot be unpacked")
            data = ctypes.string_at(output, size.value)
        for wanted, function in ((block.adler32, zlib.adler32), (block.crc32, zlib.crc32)):
            if wanted is not None and function(data) != wanted:
                raise ValueError("the checksum of a block is wrong")
        return data


def _through_program(stream: Stream, name: str, command: list, walker: Callable) -> Iterator[bytes]:
    """Unpack one frame with a program. Closing the generator ends the program."""
    problem: list[Exception] = []
    # Not the module's run_command: it holds all output in memory, and there is no module where facts.d runs this.
    with subprocess.Popen(  # pylint: disable=ansible-bad-function
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:

        def feed() -> None:
            pieces = walker(stream)
            try:
                for piece in pieces:
                    if not _write(process.stdin, piece):
                        break  # the program has ended: its code tells why
            except (UnreadableImage, OSError) as error:
                problem.append(error)
            with contextlib.suppress(OSError):
                process.stdin.close()

        feeder = threading.Thread(target=feed, daemon=True)
        watch = threading.Timer(_PROGRAM_SECONDS, process.kill)
        watch.daemon = True
        feeder.start()
        watch.start()
        try:
            while True:
                data = process.stdout.read(CHUNK)
                if not data:
                    break
                yield data
            feeder.join()
            code = process.wait()
        finally:
            watch.cancel()
            process.kill()
            feeder.join()
    if problem:
        raise problem[0]
    if code < 0:
        raise UnreadableImage(f"{command[0]} was ended by signal {-code} while it unpacked {name} data")
    if code:
        raise DamagedImage(f"damaged {name} data: {command[0]} ended with code {code}")


def _write(pipe: Any, data: bytes) -> bool:
    try:
        pipe.write(data)
    except OSError:
        return False
    return True
