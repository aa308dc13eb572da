"""Archives are downloaded whole, from servers that cut, refuse, redirect, or send something else."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.seeds import dice
from trainer.common.errors import TrainingError
from trainer.data.disk.events import Events
from trainer.data.prepare.fetch import fetch_archives
from trainer.data.prepare.published import COCO, HYMENOPTERA, IMAGENET, MNIST, Archive, Checksum

CONTENT = dice(3).randbytes(3_000_000)


@dataclass
class Server:
    """One file on loopback. `turns` are what the first requests meet, then all goes well."""

    content: bytes = CONTENT
    turns: list[Callable[[Handler], bool]] = field(default_factory=list)
    ranged: bool = True
    etag: str | None = '"one"'
    # The Range and If-Range of each request.
    asked: list[tuple[str | None, str | None]] = field(default_factory=list)
    url: str = ""


class Handler(BaseHTTPRequestHandler):
    server_of: Server

    def do_GET(self) -> None:
        server = self.server_of
        wanted, condition = self.headers.get("Range"), self.headers.get("If-Range")
        server.asked.append((wanted, condition))
        if server.turns and server.turns.pop(0)(self):
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        if start >= len(server.content):
            self.answer(416, b"", {"Content-Range": f"bytes */{len(server.content)}"})
        elif server.ranged and start and condition in {None, server.etag}:
            about = f"bytes {start}-{len(server.content) - 1}/{len(server.content)}"
            self.answer(206, server.content[start:], {"Content-Range": about})
        else:
            self.answer(200, server.content)

    def answer(
        self, status: int, body: bytes, headers: dict[str, str] | None = None, cut: int = 0
    ) -> bool:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if self.server_of.etag:
            self.send_header("ETag", self.server_of.etag)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[: len(body) - cut])
        return True

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    running = []

    def start(**fields: object) -> Server:
        server = Server(**fields)
        handler = type("One", (Handler,), {"server_of": server})
        http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        running.append((http, thread))
        server.url = f"http://127.0.0.1:{http.server_port}/set.zip"
        return server

    yield start
    for http, thread in running:
        http.shutdown()
        thread.join()
        http.server_close()


def archive(*servers: Server, content: bytes = CONTENT) -> Archive:
    digest = hashlib.sha256(content).hexdigest()
    checksum = Checksum(algorithm="sha256", digest=digest)
    urls = tuple(server.url for server in servers)
    return Archive(name="set.zip", num_bytes=len(content), checksum=checksum, urls=urls)


def fetch(folder: Path, *servers: Server) -> None:
    fetch_archives([archive(*servers)], folder, Events(as_json=True), backoff_s=(0.0,) * 3)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def cut_after(num_bytes: int) -> Callable[[Handler], bool]:
    def turn(handler: Handler) -> bool:
        wanted = handler.headers.get("Range")
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        body = CONTENT[start:]
        about = {"Content-Range": f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}"}
        status = 206 if start else 200
        return handler.answer(status, body, about if start else {}, cut=len(body) - num_bytes)

    return turn


def say(status: int, **headers: str) -> Callable[[Handler], bool]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda handler: handler.answer(status, b"", named)


def test_an_archive_comes_whole_and_a_second_time_nothing_is_asked(serve, tmp_path, capsys):
    server = serve()
    fetch(tmp_path, server)
    fetch(tmp_path, server)
    assert (tmp_path / "set.zip").read_bytes() == CONTENT
    assert (names(tmp_path), server.asked) == (["set.zip"], [(None, None)])
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    figures = {key: last[key] for key in ("verb", "files_done", "files", "bytes_done", "bytes")}
    whole = len(CONTENT)
    assert figures == {
        "verb": "downloading",
        "files_done": 1,
        "files": 1,
        "bytes_done": whole,
        "bytes": whole,
    }


def test_a_cut_connection_goes_on_where_it_ended(serve, tmp_path):
    server = serve(turns=[cut_after(1_000_000), cut_after(500_000), cut_after(7)])
    fetch(tmp_path, server)
    assert (tmp_path / "set.zip").read_bytes() == CONTENT
    starts = [None, "bytes=1000000-", "bytes=1500000-", "bytes=1500007-"]
    assert server.asked == [(start, '"one"' if start else None) for start in starts]


def test_a_killed_program_leaves_a_beginning_that_the_next_goes_on_from(serve, tmp_path):
    server = serve(turns=[cut_after(1_000_000), *[say(503)] * 4])
    with pytest.raises(TrainingError, match=r"not downloaded: 127.0.0.1: it answers 503"):
        fetch(tmp_path, server)
    assert names(tmp_path) == [".set.zip.part", ".set.zip.part.json"]
    fetch(tmp_path, server)
    assert (tmp_path / "set.zip").read_bytes() == CONTENT
    assert server.asked[-1] == ("bytes=1000000-", '"one"')
    assert names(tmp_path) == ["set.zip"]


def test_a_file_that_changed_on_the_server_is_begun_anew(serve, tmp_path):
    server = serve(turns=[cut_after(1_000_000), *[say(503)] * 4])
    with pytest.raises(TrainingError):
        fetch(tmp_path, server)
    server.etag = '"two"'
    fetch(tmp_path, server)
    assert (tmp_path / "set.zip").read_bytes() == CONTENT


def test_a_server_without_ranges_is_read_from_the_beginning(serve, tmp_path):
    server = serve(turns=[cut_after(1_000_000)], ranged=False, etag=None)
    fetch(tmp_path, server)
    assert (tmp_path / "set.zip").read_bytes() == CONTENT
    assert server.asked == [(None, None), ("bytes=1000000-", None)]


def test_a_beginning_that_is_not_the_files_is_noticed_and_fetched_anew(serve, tmp_path):
    server = serve()
    (tmp_path / ".set.zip.part").write_bytes(b"x" * 1_000_000)
    fetch(tmp_path, server)
    assert (tmp_path / "set.zip").read_bytes() == CONTENT
    assert server.asked == [("bytes=1000000-", None), (None, None)]


def test_a_beginning_larger_than_the_file_is_dropped(serve, tmp_path):
    server = serve()
    (tmp_path / ".set.zip.part").write_bytes(CONTENT + b"more")
    fetch(tmp_path, server)
    assert (tmp_path / "set.zip").read_bytes() == CONTENT
    assert server.asked == [(None, None)]


def test_a_range_that_the_server_refuses_is_dropped(serve, tmp_path):
    server = serve(turns=[cut_after(1_000_000), say(416)])
    fetch(tmp_path, server)
    assert (tmp_path / "set.zip").read_bytes() == CONTENT
    assert [start for start, _ in server.asked] == [None, "bytes=1000000-", None]


def test_wrong_bytes_never_get_the_name_and_the_next_mirror_is_asked(serve, tmp_path):
    flipped = bytearray(CONTENT)
    flipped[-1] ^= 1
    wrong, right = serve(content=bytes(flipped)), serve()
    with pytest.raises(TrainingError, match=r"its SHA256 is [0-9a-f]{64}, the published one"):
        fetch(tmp_path, wrong)
    assert "set.zip" not in names(tmp_path)
    fetch(tmp_path, wrong, right)
    assert (tmp_path / "set.zip").read_bytes() == CONTENT


def test_another_size_is_refused_before_a_byte_is_kept(serve, tmp_path):
    with pytest.raises(TrainingError, match=r"its file has 9 bytes, the published one 3000000"):
        fetch(tmp_path, serve(content=b"Not found"))
    assert (tmp_path / ".set.zip.part").stat().st_size == 0


def test_an_endless_answer_is_not_written_beyond_the_archives_size(serve, tmp_path):
    def endless(handler: Handler) -> bool:
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(CONTENT + CONTENT)
        return True

    fetch(tmp_path, serve(turns=[endless]))
    assert (tmp_path / "set.zip").read_bytes() == CONTENT


def test_a_mirror_that_lacks_it_is_passed_over_at_once(serve, tmp_path):
    missing, right = serve(turns=[say(404)] * 9), serve()
    fetch(tmp_path, missing, right)
    assert (len(missing.asked), len(right.asked)) == (1, 1)
    with pytest.raises(TrainingError) as caught:
        fetch(tmp_path / "again", missing)
    assert str(caught.value) == (
        "`set.zip` was not downloaded: 127.0.0.1: it answers 404 Not Found "
        f"(hint: type the same again later, or get {missing.url} (SHA256 "
        f"{hashlib.sha256(CONTENT).hexdigest()}) into {tmp_path / 'again'})"
    )


def test_another_mirror_goes_on_where_the_first_one_failed(serve, tmp_path):
    first = serve(turns=[cut_after(1_000_000), *[say(500)] * 9])
    second = serve(etag='"other"')
    fetch(tmp_path, first, second)
    assert (tmp_path / "set.zip").read_bytes() == CONTENT
    assert second.asked == [("bytes=1000000-", None)]


def test_redirects_are_followed_to_https_only(serve, tmp_path):
    server = serve()
    fetch(tmp_path, serve(turns=[say(302, Location=server.url)]))
    assert (tmp_path / "set.zip").read_bytes() == CONTENT
    for place in ("http://example.com/set.zip", "ftp://example.com/set.zip", "file:///etc/passwd"):
        downgrading = serve(turns=[say(302, Location=place)])
        with pytest.raises(TrainingError, match=r"not downloaded"):
            fetch(tmp_path / "other", downgrading)
    plain = Archive(
        name="set.zip",
        num_bytes=5,
        checksum=archive().checksum,
        urls=("http://example.com/set.zip",),
    )
    with pytest.raises(TrainingError, match=r"only https is used"):
        fetch_archives([plain], tmp_path / "other", Events(as_json=True))


def test_nobody_there_is_said(serve, tmp_path):
    nobody = Archive(
        name="set.zip",
        num_bytes=5,
        checksum=archive().checksum,
        urls=("http://127.0.0.1:9/set.zip",),
    )
    with pytest.raises(TrainingError, match=r"127.0.0.1: \[Errno 111\] Connection refused"):
        fetch_archives([nobody], tmp_path, Events(as_json=True), backoff_s=(0.0,))


def test_a_file_of_another_size_in_the_folder_is_left_alone(serve, tmp_path):
    (tmp_path / "set.zip").write_bytes(b"mine")
    with pytest.raises(TrainingError, match=r"has 4 bytes, the published one 3000000"):
        fetch(tmp_path, serve())
    assert (tmp_path / "set.zip").read_bytes() == b"mine"


def test_a_disk_without_room_is_named_before_anything_is_asked(tmp_path):
    huge = Archive(
        name="set.zip", num_bytes=1 << 60, checksum=archive().checksum, urls=("https://x/set.zip",)
    )
    with pytest.raises(TrainingError, match=r"lacks .* GB of room for the download"):
        fetch_archives([huge], tmp_path, Events(as_json=True))


def test_what_is_published_is_downloaded_by_https_and_checked():
    for published in (*COCO, *MNIST, *HYMENOPTERA):
        assert all(url.startswith("https://") for url in published.urls)
        assert all(url.endswith(f"/{published.name}") for url in published.urls)
        assert (published.checksum.algorithm, len(published.checksum.digest)) == ("sha256", 64)
        assert published.num_bytes > 0
    assert [(each.checksum.algorithm, each.urls) for each in IMAGENET] == [("md5", ())] * 3
