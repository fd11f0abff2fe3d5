"""The combined log: whole lines, prefixes, colours, and the status line of a terminal."""

import os
import pty
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from replicax._src.cli import _log
from replicax._src.cli._log import Lines, Log, WorkerFiles, colours_wanted


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        ([b"one\ntwo\n"], [b"one", b"two"]),
        ([b"o", b"ne", b"\ntw", b"o"], [b"one", b"two"]),
        ([b"windows\r\n", b"\n"], [b"windows", b""]),
        ([b" 10%", b"\r 50%", b"\r100%\n", b"done\n"], [b"100%", b"done"]),
        ([b"no end"], [b"no end"]),
        ([], []),
    ],
)
def test_lines_come_out_whole(pieces: list[bytes], lines: list[bytes]):
    cutter = Lines()
    found = [line for piece in pieces for line in cutter.feed(piece)]
    assert [*found, *cutter.end()] == lines


def test_progress_bar_is_shown_now_and_then(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_log, "_PROGRESS_BAR_SECONDS", 0.0)
    cutter = Lines()
    assert list(cutter.feed(b"10%\r")) == [b"10%"]
    assert list(cutter.feed(b"20%\r")) == [b"20%"]
    assert list(cutter.feed(b"100%\n")) == [b"100%"]


def test_line_without_end_does_not_fill_the_memory():
    cutter = Lines()
    found = list(cutter.feed(b"x" * ((1 << 20) + 10)))
    assert [len(line) for line in found] == [1 << 20]
    assert list(cutter.end()) == [b"x" * 10]


def written(folder: Path, write: Callable[[Log], None]) -> str:
    with open(folder / "log", "wb") as file:
        log = Log(file.fileno())
        write(log)
        log.close(10)
    return (folder / "log").read_text(encoding="utf-8")


def write_some(log: Log) -> None:
    log.worker(2, b"hello")
    log.say("one\ntwo")
    log.status("never in a file")


def test_lines_of_each_worker_are_appended_to_a_file_of_its_own(tmp_path: Path):
    (tmp_path / "worker-2.log").write_text("of an earlier job\n")
    with open(tmp_path / "log", "wb") as file:
        log = Log(file.fileno(), WorkerFiles(str(tmp_path)))
        write_some(log)
        log.worker(0, b"there")
        log.close(10)
    assert (tmp_path / "worker-2.log").read_text() == "of an earlier job\nhello\n"
    assert (tmp_path / "worker-0.log").read_text() == "there\n"
    assert "[worker 0] there\n" in (tmp_path / "log").read_text()


def test_a_full_disk_below_the_files_of_workers_is_said_once(tmp_path: Path):
    (tmp_path / "worker-0.log").symlink_to("/dev/full")
    with open(tmp_path / "log", "wb") as file:
        log = Log(file.fileno(), WorkerFiles(str(tmp_path)))
        log.worker(0, b"one")
        log.worker(0, b"two")
        log.close(10)
    text = (tmp_path / "log").read_text()
    assert text.count("No space left on device") == 1 and "[worker 0] two\n" in text


def test_file_has_no_colours_and_no_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert written(tmp_path, write_some) == "[worker 2] hello\n[launch] one\n[launch] two\n"


def test_colours_on_demand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    text = written(tmp_path, write_some)
    assert re.search(r"\x1b\[\d+m\[worker 2\]\x1b\[0m hello\n", text)
    assert "never" not in text
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in written(tmp_path, write_some)


def test_colours_of_a_terminal(monkeypatch: pytest.MonkeyPatch):
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    master, slave = pty.openpty()
    try:
        monkeypatch.setenv("TERM", "xterm")
        assert colours_wanted(slave)
        monkeypatch.setenv("TERM", "dumb")
        assert not colours_wanted(slave)
    finally:
        os.close(master)
        os.close(slave)


def test_status_line_stays_below_the_log(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "20")
    master, slave = pty.openpty()

    def read_until(end: bytes) -> bytes:
        data = b""
        while not data.endswith(end):
            data += os.read(master, 1000)
        return data.replace(b"\r\n", b"\n")

    try:
        log = Log(slave)
        log.status("step 1, and much more than 20 columns")
        assert read_until(b"much mo") == b"step 1, and much mo"
        log.worker(0, b"hello")
        assert read_until(b"much mo") == b"\r\x1b[K[worker 0] hello\nstep 1, and much mo"
        log.close(10)
        assert read_until(b"\x1b[K") == b"\r\x1b[K"
    finally:
        os.close(master)
        os.close(slave)
