"""Makes archives that must never be unpacked: each does one thing that is unsafe or not whole."""

from __future__ import annotations

import gzip
import io
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable

PAYLOAD = b"a picture\n" * 60

# What is wrong with a name, for both formats.
NAMES = {
    "absolute": "/tmp/planted.jpg",
    "parent": "../planted.jpg",
    "parent within": "a/../../planted.jpg",
    "parent after a dot": "./../planted.jpg",
    "parent last": "a/..",
    "backslashes": "..\\planted.jpg",
    "a drive": "C:/planted.jpg",
    "a stream": "a.jpg:hidden",
    "a newline": "a\nb.jpg",
    "an escape sequence": "a\x1b[2Jb.jpg",
    "turned text": "a\u202egpj.exe",
    "an empty part": "a//b.jpg",
    "a dot as part": "a/./b.jpg",
    "a space at the end": "a.jpg ",
    "a dot at the end": "folder./a.jpg",
    "a Windows device": "train/NUL.jpg",
    "5,000 deep": "d/" * 5000 + "a.jpg",
    "a long part": "x" * 300 + ".jpg",
    "a long path": "/".join(["y" * 100] * 12) + "/a.jpg",
}
# Names that go together badly.
SETS = {
    "case clash": ("train/A.jpg", "train/a.jpg"),
    "case clash of folders": ("Train/a.jpg", "train/b.jpg"),
    "accents written in two ways": ("caf\u00e9.jpg", "cafe\u0301.jpg"),
    "one name twice": ("train/a.jpg", "train/a.jpg"),
    "one name twice, once with a dot": ("train/a.jpg", "./train/a.jpg"),
    "a file that is a folder": ("train", "train/a.jpg"),
    "a folder that is a file": ("train/a.jpg", "train"),
}


def hostile_archives() -> dict[str, bytes]:
    """Give all of them by file name and what they do: `tar parent`, ..."""
    made = {f"tar {what}": _tar([_file(name)]) for what, name in NAMES.items()}
    made |= {f"tar {what}": _tar([_file(name) for name in names]) for what, names in SETS.items()}
    made |= {f"tar {what}": make() for what, make in _TARS.items()}
    made |= {f"gz {what}": make() for what, make in _GZIPS.items()}
    made |= {f"zip {what}": _zip([(name, PAYLOAD)]) for what, name in NAMES.items()}
    made |= {f"zip {what}": _zip([(n, PAYLOAD) for n in names]) for what, names in SETS.items()}
    made |= {f"zip {what}": make() for what, make in _ZIPS.items()}
    return made


# --- tar ---------------------------------------------------------------------------------------

_Entry = tuple[tarfile.TarInfo, bytes]


def _file(name: str, **fields: object) -> _Entry:
    member = tarfile.TarInfo(name)
    member.size = len(PAYLOAD)
    for field, value in fields.items():
        setattr(member, field, value)
    return member, PAYLOAD if member.isreg() else b""


def _special(kind: bytes, **fields: object) -> bytes:
    return _tar([_file("a.jpg", type=kind, size=0, **fields)])


def _tar(entries: list[_Entry], form: int = tarfile.PAX_FORMAT) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=form) as archive:
        for member, content in entries:
            archive.addfile(member, io.BytesIO(content))
    return made.getvalue()


def _through_a_link() -> bytes:
    link = tarfile.TarInfo("train")
    link.type, link.linkname = tarfile.SYMTYPE, "/tmp"
    return _tar([(link, b""), _file("train/planted.jpg")])


def _header(
    kind: bytes = b"0", size: bytes = b"00000001130\0", mode: bytes = b"0000644\0"
) -> bytes:
    record = bytearray(512)
    record[:5], record[100:108], record[124:136] = b"a.jpg", mode, size
    record[156:157], record[257:265] = kind, b"ustar\x0000"
    record[148:156] = b" " * 8
    record[148:156] = f"{sum(record):06o}\0 ".encode()
    return bytes(record)


def _raw(header: bytes, content: bytes = PAYLOAD) -> bytes:
    return header + content + bytes(-len(content) % 512) + bytes(1024)


def _pax(records: bytes, kind: bytes = b"x") -> bytes:
    header = _header(kind=kind, size=f"{len(records):011o}\0".encode())
    return header + records + bytes(-len(records) % 512) + _raw(_header())


def _record(key: bytes, value: bytes) -> bytes:
    rest = b" " + key + b"=" + value + b"\n"
    length = len(rest)
    while len(str(length)) + len(rest) != length:
        length = len(str(length)) + len(rest)
    return str(length).encode() + rest


def _broken_header() -> bytes:
    made = bytearray(_tar([_file("a.jpg")]))
    made[0] ^= 1
    return bytes(made)


def _bad_bytes() -> bytes:
    return _tar([_file("a\udcff.jpg")], form=tarfile.GNU_FORMAT)


_whole = _tar([_file("a.jpg"), _file("b.jpg")])

_TARS: dict[str, Callable[[], bytes]] = {
    "symbolic link": lambda: _special(tarfile.SYMTYPE, linkname="/etc/passwd"),
    "file through a link": _through_a_link,
    "hard link out": lambda: _special(tarfile.LNKTYPE, linkname="/etc/passwd"),
    "hard link within": lambda: _special(tarfile.LNKTYPE, linkname="b.jpg"),
    "character device": lambda: _special(tarfile.CHRTYPE, devmajor=1, devminor=3),
    "block device": lambda: _special(tarfile.BLKTYPE, devmajor=8),
    "pipe": lambda: _special(tarfile.FIFOTYPE),
    "GNU sparse file of 10 GB": lambda: _raw(_header(kind=b"S", size=b"\x80" + bytes(10) + b"\1")),
    "pax sparse file": lambda: _pax(_record(b"GNU.sparse.realsize", b"10000000000")),
    "unknown kind": lambda: _raw(_header(kind=b"Z")),
    "folder with content": lambda: _raw(_header(kind=b"5")),
    "set-user-id": lambda: _tar([_file("a.jpg", mode=0o4755)]),
    "set-group-id": lambda: _tar([_file("a.jpg", mode=0o2755)]),
    "sticky": lambda: _tar([_file("a.jpg", mode=0o1755)]),
    "no name": lambda: _tar([_file("")]),
    "a name of other bytes": _bad_bytes,
    "a NUL in a pax name": lambda: _pax(_record(b"path", b"a.jpg\0/../x")),
    "a pax link path": lambda: _pax(_record(b"linkpath", b"/etc/passwd")),
    "a pax header of 1 MB": lambda: _pax(_record(b"comment", b"x" * (1 << 20))),
    "a pax header that overruns": lambda: _pax(b"99 path=a.jpg\n"),
    "a pax header of no length": lambda: _pax(b"0 path=a.jpg\n"),
    "a pax header without value": lambda: _pax(b"11 pathajpg\n"),
    "a pax size below zero": lambda: _pax(_record(b"size", b"-1")),
    "a pax size past the end": lambda: _pax(_record(b"size", b"10000000000")),
    "a name for all members": lambda: _pax(_record(b"path", b"b.jpg"), kind=b"g"),
    "a long name of 1 MB": lambda: _pax(b"x" * (1 << 20), kind=b"L"),
    "a size that is no number": lambda: _raw(_header(size=b"9x9\0".ljust(12, b"\0"))),
    "a size below zero": lambda: _raw(_header(size=b"\xff" * 12)),
    "a size of 2**80": lambda: _raw(_header(size=b"\x80\1" + bytes(10))),
    "a damaged header": _broken_header,
    "cut in a picture": lambda: _whole[:700],
    "cut in a header": lambda: _whole[:1600],
    "cut between pictures": lambda: _whole[: 512 + 1024],
    "more after the end": lambda: _whole + _whole,
    "nothing": lambda: b"",
}

# --- tar.gz ------------------------------------------------------------------------------------


def _gzip_bomb() -> bytes:
    """After a full flush nothing refers to what came before: one block stands for all."""
    stream = zlib.compressobj(1, zlib.DEFLATED, -15)
    head = stream.compress(_header(size=b"\x80" + bytes(6) + (10 << 30).to_bytes(5, "big")))
    head += stream.flush(zlib.Z_FULL_FLUSH)
    block = stream.compress(bytes(8 << 20)) + stream.flush(zlib.Z_FULL_FLUSH)
    packed = head + block * (10 << 3) + stream.flush()
    # The checksum at the end is none: who gets there has filled the disk.
    end = struct.pack("<2I", 0, 512 + (10 << 26))
    return b"\x1f\x8b\x08" + bytes(5) + b"\x02\xff" + packed + end


_GZIPS: dict[str, Callable[[], bytes]] = {
    "bomb": _gzip_bomb,
    "cut off": lambda: gzip.compress(_whole)[:-30],
    "no end": lambda: gzip.compress(_whole)[:-8],
    "damaged": lambda: gzip.compress(_whole)[:-8] + bytes(8),
}

# --- zip ---------------------------------------------------------------------------------------


def _info(name: str, **fields: object) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo("x")
    info.filename = name
    info.compress_type = zipfile.ZIP_DEFLATED
    for field, value in fields.items():
        setattr(info, field, value)
    return info


def _zip(entries: list[tuple[str, bytes]], **fields: object) -> bytes:
    import warnings

    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a name that is there already
        for name, content in entries:
            archive.writestr(_info(name, **fields), content)
    return made.getvalue()


def _zip_mode(mode: int) -> bytes:
    return _zip([("a.jpg", b"/etc/passwd")], external_attr=mode << 16)


def _patched(content: bytes, **fields: int) -> bytes:
    """Change fields in the directory's first entry: flags 8, method 10, crc 16, sizes 20 and 24."""
    made = bytearray(content)
    start = made.index(b"PK\1\2")
    for name, value in fields.items():
        offset, form = {
            "flags": (8, "<H"),
            "method": (10, "<H"),
            "crc": (16, "<I"),
            "packed": (20, "<I"),
            "unpacked": (24, "<I"),
            "place": (42, "<I"),
        }[name]
        struct.pack_into(form, made, start + offset, value)
    return bytes(made)


def _overlapping() -> bytes:
    """Two entries of the directory that both begin at the first one's bytes, as in a zip bomb."""
    made = bytearray(_zip([("a.jpg", PAYLOAD), ("b.jpg", PAYLOAD)]))
    second = made.index(b"PK\1\2", made.index(b"PK\1\2") + 4)
    struct.pack_into("<I", made, second + 42, 0)
    return bytes(made)


def _long_extra_field() -> bytes:
    """A first member whose own header, not the directory, claims the second one's bytes."""
    made = bytearray(_zip([("a.jpg", PAYLOAD), ("b.jpg", PAYLOAD)]))
    struct.pack_into("<H", made, 28, 20)
    return bytes(made)


def _zip_bomb() -> bytes:
    stream = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = b"".join(stream.compress(bytes(1 << 20)) for _ in range(200)) + stream.flush()
    return _with_content(packed, 200 << 20)


def _with_content(packed: bytes, size: int) -> bytes:
    """An archive of one deflated member that says it unpacks to `size` bytes."""
    name = b"a.jpg"
    fields = (20, 0, 8, 0, 0, 0, len(packed), size, len(name), 0)
    local = struct.pack("<4s5H3I2H", b"PK\3\4", *fields) + name
    directory = struct.pack("<4s6H3I5H2I", b"PK\1\2", 20, *fields[:-1], 0, 0, 0, 0, 0, 0) + name
    start = len(local) + len(packed)
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 1, 1, len(directory), start, 0)
    return local + packed + directory + end


def _deflated(content: bytes) -> bytes:
    stream = zlib.compressobj(9, zlib.DEFLATED, -15)
    return stream.compress(content) + stream.flush()


def _other_local_name() -> bytes:
    return _zip([("a.jpg", PAYLOAD)]).replace(b"a.jpg", b"b.jpg", 1)


_zipped = _zip([("a.jpg", PAYLOAD)])

_ZIPS: dict[str, Callable[[], bytes]] = {
    "symbolic link": lambda: _zip_mode(stat.S_IFLNK | 0o777),
    "device": lambda: _zip_mode(stat.S_IFCHR | 0o666),
    "pipe": lambda: _zip_mode(stat.S_IFIFO | 0o666),
    "set-user-id": lambda: _zip_mode(stat.S_IFREG | 0o4755),
    "a NUL in a name": lambda: _zip([("axjpg", PAYLOAD)]).replace(b"axjpg", b"a\0jpg"),
    "no name": lambda: _zip([("", PAYLOAD)]),
    "encrypted": lambda: _patched(_zipped, flags=1),
    "strongly encrypted": lambda: _patched(_zipped, flags=0x41),
    "bzip2": lambda: _patched(_zipped, method=12),
    "bomb": _zip_bomb,
    "bomb that says it is small": lambda: _with_content(_deflated(bytes(50 << 20)), 100),
    "bomb of 4 GB, declared": lambda: _patched(_zipped, unpacked=0xFFFFFFF0),
    "smaller than it says": lambda: _with_content(_deflated(PAYLOAD), 2 * len(PAYLOAD)),
    "overlapping members": _overlapping,
    "a long extra field": _long_extra_field,
    "a place past the end": lambda: _patched(_zipped, place=1 << 30),
    "packed past the end": lambda: _patched(_zipped, packed=1 << 30),
    "another name in front of it": _other_local_name,
    "a wrong checksum": lambda: _patched(_zipped, crc=1),
    "cut off": lambda: _zipped[:-30],
    "without its directory": lambda: _zipped[: _zipped.index(b"PK\1\2")],
    "nothing": lambda: b"",
}
