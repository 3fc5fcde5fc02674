"""``.npy`` files whose rows are appended one after the other, and which are read in pieces."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from typing import IO, Any

import numpy as np

from zoo.common.tools.errors import InvalidValue

#: The bytes before the data: enough for any shape, and a multiple of 64, so that the data is aligned.
_HEADER_BYTES = 256


class Damaged(InvalidValue):
    """An array that cannot be read; the message is no sentence, but says how it is damaged."""


class ArrayFile:
    """A ``.npy`` file that grows by rows.

    Args:
        path: the file to make.
        shape: of one row.
        dtype: of the array.

    Attributes:
        rows: how many have been appended.
    """

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: Any) -> None:
        self.path, self.shape, self.dtype, self.rows = path, tuple(shape), np.dtype(dtype), 0
        self._file = open(path, 'wb')  # noqa: SIM115
        self._file.write(bytes(_HEADER_BYTES))
        self._digest = hashlib.sha256()

    def append(self, rows: np.ndarray) -> None:
        """Append rows ``[n, …]``; other dtypes are converted."""
        raw = np.ascontiguousarray(rows, self.dtype).reshape(len(rows), *self.shape).tobytes()
        self._file.write(raw)
        self._digest.update(raw)
        self.rows += len(rows)

    def close(self) -> dict[str, Any]:
        """Complete the file; return its size in bytes and the SHA-256 of its data."""
        self._file.seek(0)
        self._file.write(_header((self.rows, *self.shape), self.dtype))
        self._file.close()
        return {'bytes': self.path.stat().st_size, 'sha256': self._digest.hexdigest()}

    def abandon(self) -> None:
        """Close the file as it is."""
        with contextlib.suppress(OSError):  # the disk is full, which was told before
            self._file.close()


def _header(shape: tuple[int, ...], dtype: np.dtype) -> bytes:
    """Return the head of a ``.npy`` file of version 1.0."""
    described = {'descr': np.lib.format.dtype_to_descr(dtype), 'fortran_order': False, 'shape': shape}
    begin = np.lib.format.magic(1, 0) + (_HEADER_BYTES - 10).to_bytes(2, 'little')
    return begin + repr(described).encode('latin1').ljust(_HEADER_BYTES - 11) + b'\n'


def read_header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype]:
    """Read the head of a ``.npy`` file; return the shape and the dtype of its array.

    Raises:
        ValueError: it is no ``.npy`` file, or holds objects or columns first.
    """
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise Damaged(f'version {version} of the .npy format')
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, columns_first, dtype = read(file)
    if dtype.hasobject:
        raise Damaged('it holds pickled objects, which are never loaded')
    if columns_first and len(shape) > 1:
        raise Damaged('its axes are in the order of Fortran')
    return shape, dtype


class RowReader:
    """Reads the rows of an open ``.npy`` file, first to last.

    Args:
        file: open at its beginning; it need not be able to seek.

    Attributes:
        shape, dtype: of the whole array.

    Raises:
        ValueError: it is no ``.npy`` file that can be read so.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.shape, self.dtype = read_header(file)
        self._row_bytes = int(np.prod(self.shape[1:])) * self.dtype.itemsize

    def take(self, rows: int) -> np.ndarray:
        """Return the next rows ``[rows, …]``.

        Raises:
            ValueError: the file ends before.
        """
        return np.frombuffer(self.raw(rows), self.dtype).reshape(rows, *self.shape[1:])

    def raw(self, rows: int) -> bytearray:
        """Return the bytes of the next rows."""
        wanted = rows * self._row_bytes
        found = bytearray()
        while len(found) < wanted:
            piece = self._file.read(min(wanted - len(found), 1 << 24))
            if not piece:
                raise Damaged('it ends too early')
            found += piece
        return found

    def skip(self, rows: int) -> None:
        """Pass over rows."""
        left = rows * self._row_bytes
        while left:
            piece = self._file.read(min(left, 1 << 24))
            if not piece:
                raise Damaged('it ends too early')
            left -= len(piece)

    def end(self) -> None:
        """Read to the end, where an archive compares its checksum.

        Raises:
            ValueError: there are more bytes than rows.
        """
        if self._file.read(1):
            raise Damaged('it goes on after its last row')

    def close(self) -> None:
        """Close the file."""
        self._file.close()
