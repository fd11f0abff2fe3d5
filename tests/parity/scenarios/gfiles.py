"""Files and folders: `tf.io.gfile`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from .._library import Library
from .._observation import Seen
from .._pipelines import HOST_ONLY, folder
from .._registry import ours, scenario

Action = Callable[[Any, str], Any]


def _read(file: Any) -> Any:
    with file:
        return [file.read(3), file.tell(), file.read(), file.read(), file.size(), file.mode]


def _lines(file: Any) -> Any:
    with file:
        return [file.readline(), list(file), file.readline(), file.seek(0), file.readlines()]


def _written(gfile: Any, name: str, mode: str, content: Any) -> Any:
    with gfile.GFile(name, mode) as file:
        file.write(content)
        file.flush()
    return Path(name).read_text()


def _walked(gfile: Any, path: str, topdown: bool) -> Any:
    found = gfile.walk(path, topdown)
    return [[top[len(path) :], sorted(dirs), sorted(files)] for top, dirs, files in found]


def _globbed(gfile: Any, path: str, *patterns: str) -> Any:
    found = gfile.glob([f"{path}/{pattern}" for pattern in patterns])
    return sorted(name[len(path) :] for name in found)


# `p` has a.txt, b.txt and a folder d, in which are x.txt, .hidden and a folder e with y.txt.
ACTIONS: dict[str, Action] = {
    "exists": lambda g, p: [g.exists(f"{p}/{name}") for name in ("a.txt", "d", "no", "d/x.txt")],
    "isdir": lambda g, p: [g.isdir(f"{p}/{name}") for name in ("a.txt", "d", "no")],
    "listdir": lambda g, p: sorted(g.listdir(f"{p}/d")),
    "listdir of a file": lambda g, p: g.listdir(f"{p}/a.txt"),
    "listdir of nothing": lambda g, p: g.listdir(f"{p}/no"),
    "glob": lambda g, p: _globbed(g, p, "*"),
    "glob of several": lambda g, p: _globbed(g, p, "*.txt", "d/*"),
    "glob of none": lambda g, p: _globbed(g, p, "no*"),
    "glob of folders": lambda g, p: _globbed(g, p, "d/*/*", "d/**/y.txt"),
    "glob of letters": lambda g, p: _globbed(g, p, "[ac].txt", "?.txt", "d/e"),
    "mkdir": lambda g, p: (g.mkdir(f"{p}/new"), g.mkdir(f"{p}/new"), g.isdir(f"{p}/new"))[2],
    "mkdir in none": lambda g, p: g.mkdir(f"{p}/no/new"),
    "makedirs": lambda g, p: (g.makedirs(f"{p}/m/n"), g.makedirs(f"{p}/m/n"), g.isdir(f"{p}/m/n"))[
        2
    ],
    "makedirs of a file": lambda g, p: g.makedirs(f"{p}/a.txt"),
    "makedirs in a file": lambda g, p: g.makedirs(f"{p}/a.txt/b"),
    "remove": lambda g, p: (g.remove(f"{p}/a.txt"), g.exists(f"{p}/a.txt"))[1],
    "remove nothing": lambda g, p: g.remove(f"{p}/no"),
    "remove a folder": lambda g, p: g.remove(f"{p}/d"),
    "rmtree": lambda g, p: (g.rmtree(f"{p}/d"), g.exists(f"{p}/d"))[1],
    "rmtree of nothing": lambda g, p: g.rmtree(f"{p}/no"),
    "rmtree of a file": lambda g, p: (g.rmtree(f"{p}/a.txt"), g.exists(f"{p}/a.txt"))[1],
    "copy": lambda g, p: (g.copy(f"{p}/a.txt", f"{p}/c"), _read(g.GFile(f"{p}/c")))[1],
    "copy over another": lambda g, p: g.copy(f"{p}/a.txt", f"{p}/b.txt"),
    "copy over another, allowed": lambda g, p: (
        g.copy(f"{p}/a.txt", f"{p}/b.txt", overwrite=True),
        _read(g.GFile(f"{p}/b.txt")),
    )[1],
    "copy nothing": lambda g, p: g.copy(f"{p}/no", f"{p}/c"),
    "copy into none": lambda g, p: g.copy(f"{p}/a.txt", f"{p}/no/c"),
    "copy over a folder": lambda g, p: g.copy(f"{p}/a.txt", f"{p}/d", True),
    "rename": lambda g, p: (g.rename(f"{p}/a.txt", f"{p}/c"), sorted(g.listdir(p)))[1],
    "rename a folder": lambda g, p: (g.rename(f"{p}/d", f"{p}/c"), sorted(g.listdir(p)))[1],
    "rename over another": lambda g, p: g.rename(f"{p}/a.txt", f"{p}/b.txt"),
    "rename over another, allowed": lambda g, p: (
        g.rename(f"{p}/a.txt", f"{p}/b.txt", overwrite=True),
        sorted(g.listdir(p)),
    )[1],
    "rename nothing": lambda g, p: g.rename(f"{p}/no", f"{p}/c"),
    "stat": lambda g, p: [g.stat(f"{p}/a.txt").length, g.stat(f"{p}/d").is_directory],
    "stat of nothing": lambda g, p: g.stat(f"{p}/no"),
    "walk": lambda g, p: _walked(g, p, True),
    "walk from below": lambda g, p: _walked(g, p, False),
    "walk of nothing": lambda g, p: _walked(g, f"{p}/no", True),
    "join": lambda g, p: [
        *(g.join("a", "b"), g.join("a/", "b"), g.join("a", "/b"), g.join("gs://x", "y")),
        g.join("a"),
    ],
    "read": lambda g, p: _read(g.GFile(f"{p}/a.txt")),
    "lines": lambda g, p: _lines(g.GFile(f"{p}/a.txt", "r")),
    "bytes": lambda g, p: g.GFile(f"{p}/a.txt", "rb").read().decode(),
    "seek from the end": lambda g, p: (lambda file: (file.seek(-3, 2), file.read())[1])(
        g.GFile(f"{p}/a.txt")
    ),
    "read nothing": lambda g, p: g.GFile(f"{p}/no").read(),
    "open nothing": lambda g, p: g.GFile(f"{p}/no").mode,
    "read a folder": lambda g, p: g.GFile(f"{p}/d").read(),
    "write": lambda g, p: _written(g, f"{p}/w", "w", "one\n"),
    "write over another": lambda g, p: _written(g, f"{p}/a.txt", "w", "one\n"),
    "append": lambda g, p: _written(g, f"{p}/a.txt", "a", "one\n"),
    "write bytes": lambda g, p: _written(g, f"{p}/w", "wb", b"one"),
    "write into none": lambda g, p: _written(g, f"{p}/no/w", "w", "one"),
    "write what is read": lambda g, p: g.GFile(f"{p}/a.txt").write("x"),
    "read what is written": lambda g, p: g.GFile(f"{p}/w", "w").read(),
}


@scenario(case=tuple(ACTIONS), eager_only=HOST_ONLY)
def files(lib: Library, case: str) -> Any:
    with folder() as path:
        (path / "a.txt").write_text("hello\nworld\n")
        (path / "b.txt").write_text("")
        (path / "d" / "e").mkdir(parents=True)
        for name in ("d/x.txt", "d/.hidden", "d/e/y.txt"):
            (path / name).write_text(name)
        try:
            return ACTIONS[case](lib.io.gfile, str(path))
        except Exception as error:  # of these, both libraries have classes of the same names
            return Seen(raises=type(error).__name__)


@scenario(mode=("x", "rw", ""), eager_only=HOST_ONLY)
@ours("an argument that is wrong is a ValueError everywhere", Seen(raises="ValueError"))
def modes(lib: Library, mode: str) -> Any:
    try:
        return lib.io.gfile.GFile("some", mode).mode
    except Exception as error:
        return Seen(raises=type(error).__name__)
