"""`rx.progress`: what it counts and shows, and that nothing is waited for or left behind."""

import io
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rich
from rich.console import Console

import replicax as rx
from replicax._src.watching import _surfaces
from tests.guards import ROOT

from .test_pace import Clock
from .test_pace import clock as clock

HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"  # the cursor


def terminal() -> Console:
    return Console(force_terminal=True, force_jupyter=False, width=120, file=io.StringIO())


def output_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def screen_of(text: str) -> list[str]:
    """What a terminal shows in the end."""
    lines, row = [""], 0
    for part in text.replace("\r\x1b[2K", "\0E").replace("\x1b[1A\x1b[2K", "\0U").split("\0"):
        if part.startswith("E"):
            lines[row], part = "", part[1:]
        elif part.startswith("U"):
            row -= 1
            lines[row], part = "", part[1:]
        for index, line in enumerate(part.split("\n")):
            row += index > 0
            if row == len(lines):
                lines.append("")
            lines[row] = line.rpartition("\r")[2] if "\r" in line else lines[row] + line
    return [line.replace(HIDE, "").replace(SHOW, "") for line in lines if line.strip(HIDE + SHOW)]


class NeverReady:
    """A loss that the devices are still busy with, for as long as the test likes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ready: set[int] = set()
        array = type(jnp.zeros(()))
        monkeypatch.setattr(array, "is_ready", lambda value: int(value) in self.ready)


# What it gives and counts.


@pytest.mark.parametrize(
    ("make", "length"),
    [
        (lambda: range(5), 5),
        (lambda: [1, 2, 3], 3),
        (lambda: iter([1, 2, 3]), 3),
        (lambda: (x for x in range(4)), None),
        (lambda: rx.data.Dataset.range(10).batch(4), 3),
        (lambda: rx.data.Dataset.range(3).filter(lambda x: x > 0), None),
        (lambda: {"a": 1, "b": 2}, 2),
    ],
    ids=["range", "list", "iterator", "generator", "dataset", "unknown", "dict"],
)
def test_gives_what_it_loops_over(make: Any, length: int | None, capsys: Any):
    bar = rx.progress(make())
    if length is None:
        with pytest.raises(TypeError, match="total="):
            len(bar)
    else:
        assert len(bar) == length
    given = [np.asarray(each).tolist() for each in bar]
    assert given == [np.asarray(each).tolist() for each in make()]
    assert bar.step == len(given)
    total = "" if length is None else f"/{length}"
    assert capsys.readouterr().out.startswith(f"step {len(given)}{total}, ")


def test_distributed_data_set_over_all_strategies(strategy: Any, capsys: Any):
    dataset = rx.data.Dataset.from_tensor_slices(np.arange(20.0, dtype=np.float32)).batch(8)
    batches = strategy.experimental_distribute_dataset(dataset)
    bar = rx.progress(batches, "epoch 1")
    for x in bar:
        per_replica = strategy.run(jnp.sum, args=(x,))
        bar.show(total=strategy.reduce("SUM", per_replica, axis=None), parts=per_replica)
    output = capsys.readouterr().out
    assert output.startswith("epoch 1: step 3/3, total 70.00, parts ")
    assert "examples/s" in output and "input wait" in output
    assert bar.examples_per_second and bar.examples_per_second > 0
    assert bar.input_wait is not None and 0 <= bar.input_wait <= 1


def test_can_be_iterated_again(capsys: Any):
    bar = rx.progress(range(3), transient=True)
    assert [list(bar), list(bar), bar.step] == [[0, 1, 2], [0, 1, 2], 3]
    assert capsys.readouterr().out == ""


def test_a_bar_in_itself_does_not_crash(capsys: Any):
    bar = rx.progress(range(2))
    assert [(a, b) for a in bar for b in bar] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_in_a_compiled_function_the_loop_is_python(capsys: Any):
    strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        total = rx.Variable(0.0, aggregation=rx.VariableAggregation.SUM)

    @rx.function
    def loop(steps: int) -> None:
        bar = rx.progress(range(steps))
        for _ in bar:
            strategy.run(lambda: total.assign_add(1.0))
            bar.show(total=total)

    loop(3)
    assert total.numpy() == 6
    assert capsys.readouterr().out.startswith("step 3/3, total 6.000, ")


def test_of_eager_replicas_the_first_shows(capsys: Any):
    strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    strategy.run(lambda: [None for _ in rx.progress(range(4), "inside")])
    assert capsys.readouterr().out.count("inside: step 4/4") == 1


# Errors.


def test_wrong_arguments_say_what_to_write():
    with pytest.raises(TypeError, match=r"rx.progress\(range\(10\)\)"):
        rx.progress(10)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="loops over an iterable"):
        rx.progress(None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`total` must be a whole number"):
        rx.progress([], total=1.5)  # type: ignore[arg-type]


def test_values_that_cannot_be_shown_say_what_to_do():
    bar = rx.progress(range(1))
    with pytest.raises(ValueError, match="'x' must be one number.*jnp.mean"):
        bar.show(x=jnp.zeros(3))

    @jax.jit
    def compiled(x: Any) -> Any:
        bar.show(loss=x)
        return x

    with pytest.raises(TypeError, match="'loss' has no value yet.*Return it"):
        compiled(1.0)


# Lines.


def test_lines_at_an_interval_and_one_at_the_end(clock: Clock, capsys: Any):
    bar = rx.progress(range(100), "epoch 1", batch_size=32)
    for step in bar:
        clock.pass_(0.5)
        bar.show(loss=jnp.float32(step))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == ("epoch 1: step 20/100, loss 19.00, 64 examples/s, 0:40 left, input wait 0%")
    assert [line.split(",")[0] for line in lines[1:-1]] == [
        f"epoch 1: step {step}/100" for step in (40, 60, 80, 100)
    ]
    assert lines[-1] == "epoch 1: step 100/100, loss 99.00, 64 examples/s, in 0:50, input wait 0%"


def test_input_wait_is_the_time_in_next(clock: Clock, capsys: Any):
    def slow() -> Iterator[int]:
        for step in range(10):
            clock.pass_(3.0)
            yield step

    bar = rx.progress(slow(), seconds_between=1000)
    for _ in bar:
        clock.pass_(1.0)
    assert bar.input_wait == pytest.approx(0.75)
    assert capsys.readouterr().out == "step 10, 0.2 steps/s, in 0:40, input wait 75%\n"


def test_without_rich_there_are_lines(monkeypatch: pytest.MonkeyPatch, capsys: Any):
    monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.setattr(_surfaces, "_told_to_install", False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    for _ in range(2):
        assert list(rx.progress(range(2))) == [0, 1]
    output = capsys.readouterr().out
    assert output.count('pip install "replicax[progress]"') == 1
    assert output.count("step 2/2") == 2


@pytest.mark.parametrize("rich", [True, False])
def test_a_program_without_standard_output_goes_on(monkeypatch: pytest.MonkeyPatch, rich: bool):
    if not rich:
        monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.setattr(sys, "stdout", None)  # as Python has it after `>&-`
    assert list(rx.progress(range(2))) == [0, 1]


@pytest.mark.parametrize("options", [{"force_terminal": False}, {"_environ": {"TERM": "dumb"}}])
def test_consoles_that_cannot_draw_get_lines(options: dict[str, Any]):
    options = {"force_terminal": True, "width": 20, "file": io.StringIO()} | options
    console = Console(**options)
    list(rx.progress(range(3), "[a] long description", console=console))
    assert output_of(console).startswith("[a] long description: step 3/3")
    assert output_of(console).count("\n") == 1


# Terminals.


def test_a_bar_on_a_terminal_is_replaced_by_a_line(clock: Clock):
    console = terminal()
    bar = rx.progress(range(4), "epoch 1", console=console)
    for step in bar:
        clock.pass_(1.0)
        bar.show(loss=0.5 - step / 10)
    output = output_of(console)
    assert "━" in output and "2/4  loss 0.4000  1.0 steps/s  0:02 left" in output
    assert output.count(HIDE) == output.count(SHOW) == 1
    assert screen_of(output) == [
        "epoch 1: step 4/4, loss 0.2000, 1.0 steps/s, in 0:04, input wait 0%"
    ]


def test_where_there_is_little_room_facts_are_cut_and_lines_are_not_broken(clock: Clock):
    for width in (100, 60, 40, 20):
        console = Console(force_terminal=True, width=width, file=io.StringIO())
        bar = rx.progress(range(4), "epoch 1", console=console, transient=True)
        for _ in bar:
            clock.pass_(1.0)
            bar.show(loss=0.5, accuracy=0.25)
        drawn = re.sub(r"\x1b\[[0-9;]*m", "", output_of(console))  # without colours
        rows = [row for row in re.split(r"\x1b\[\S*?[A-Za-z]|[\r\n]", drawn) if "3/4" in row]
        assert rows and all(len(row) <= width for row in rows)
        if width > 20:
            assert all(row.startswith("epoch 1  ━") and "loss 0.5000" in row for row in rows)


def test_nothing_is_left_of_a_transient_bar():
    console = terminal()
    assert list(rx.progress(range(4), console=console, transient=True)) == [0, 1, 2, 3]
    assert screen_of(output_of(console)) == []


@pytest.mark.parametrize("how", ["break", "raise"])
def test_the_terminal_is_clean_after_a_loop_that_was_left(how: str):
    console, before = terminal(), (sys.stdout, sys.stderr)

    def loop() -> None:
        bar = rx.progress(range(100), "epoch 1", console=console)
        for step in bar:
            bar.show(loss=jnp.float32(step))
            if step == 2 and how == "break":
                break
            if step == 2:
                raise KeyError("the step failed")

    if how == "break":
        loop()
    else:
        with pytest.raises(KeyError, match="the step failed"):
            loop()
    assert (sys.stdout, sys.stderr) == before
    output = output_of(console)
    assert output.count(HIDE) == output.count(SHOW) == 1
    (line,) = screen_of(output)
    assert line.startswith("epoch 1: step 3/100, loss 2.000, ")


def test_a_data_set_that_fails_takes_its_bar_along():
    def failing() -> Iterator[int]:
        yield 1
        raise OSError("no such file")

    console = terminal()
    with pytest.raises(OSError, match="no such file"):
        list(rx.progress(failing(), console=console))
    assert output_of(console).count(SHOW) == 1


def test_bars_in_bars_and_prints_between_them(clock: Clock):
    console = terminal()
    for _ in rx.progress(range(2), "epochs", console=console):
        for _ in rx.progress(range(3), "steps", console=console):
            clock.pass_(1.0)
        console.print("tested")
    output = output_of(console)
    assert output.count(HIDE) == output.count(SHOW) == 1
    shown = screen_of(output)
    assert [line.split(",")[0] for line in shown] == [
        *(["steps: step 3/3", "tested"] * 2),
        "epochs: step 2/2",
    ]


def test_a_second_bar_while_one_is_held_and_any_order_of_ends():
    console = terminal()
    first = iter(rx.progress(range(3), "first", console=console))
    next(first)
    second = iter(rx.progress(range(3), "second", console=console))
    next(second)
    first.close()  # type: ignore[attr-defined]
    assert list(second) == [1, 2]
    output = output_of(console)
    assert output.count(HIDE) == output.count(SHOW) == 1
    assert [line.split(":")[0] for line in screen_of(output)] == ["first", "second"]


def test_works_beside_a_live_display_of_the_user():
    from rich.live import Live

    console = terminal()
    with Live("mine", console=console, auto_refresh=False):
        assert list(rx.progress(range(3), console=console)) == [0, 1, 2]
    assert output_of(console).count(SHOW) == 1


# Values are not waited for.


def test_values_that_are_not_computed_are_not_waited_for(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    devices = NeverReady(monkeypatch)
    console = terminal()
    bar = rx.progress(range(6), console=console)
    seen = []
    for step in bar:
        clock.pass_(1.0)
        devices.ready = set(range(step - 1))  # two steps behind
        bar.show(loss=jnp.int32(step))
        seen.append(bar._loop._texts.get("loss"))
    # Step 0 is awaited until it is there, at step 2; then what was the newest at that time.
    assert seen == [None, None, "0", "0", "2", "2"]
    (line,) = screen_of(output_of(console))
    assert line.startswith("step 6/6, loss 5, ")  # the last is waited for


@pytest.mark.parametrize("kind", ["variable", "metric"])
def test_variables_and_metrics_are_not_waited_for(
    kind: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    devices = NeverReady(monkeypatch)
    shown: Any = rx.Variable(0) if kind == "variable" else rx.metrics.Sum()
    bar = rx.progress(range(4), console=terminal())
    seen = []
    for step in bar:
        clock.pass_(1.0)
        devices.ready = set(range(step))  # a step behind
        if kind == "variable":
            shown.assign(step)
        else:
            shown.reset_state()
            shown.update_state(float(step))
        bar.show(value=shown)
        text = bar._loop._texts.get("value")
        seen.append(None if text is None else float(text))
    assert seen == [None, 0, 1, 2]


def test_loops_of_several_threads_share_a_terminal(monkeypatch: pytest.MonkeyPatch):
    from rich.live import Live

    before, displays = sys.stdout, []
    second = threading.Event()
    start = Live.start

    def slow_start(self: Live, refresh: bool = False) -> None:
        displays.append(self)
        if len(displays) > 1:
            second.set()
        second.wait(0.2)  # time enough for the other loop to begin a display of its own
        start(self, refresh)

    monkeypatch.setattr(Live, "start", slow_start)
    console = terminal()
    together = threading.Barrier(2)

    def loop(name: int) -> None:
        bar = iter(rx.progress(range(3), f"loop {name}", console=console, seconds_between=0))
        together.wait()
        next(bar)
        together.wait()  # both have begun, and neither has ended
        list(bar)

    threads = [threading.Thread(target=loop, args=(name,)) for name in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(displays) == 1
    assert sys.stdout is before  # rich has given it back
    lines = sorted(line.partition(",")[0] for line in screen_of(output_of(console)))
    assert lines == ["loop 0: step 3/3", "loop 1: step 3/3"]


def test_between_two_drawings_nothing_is_converted(clock: Clock, monkeypatch: pytest.MonkeyPatch):
    conversions = []
    array = type(jnp.zeros(()))
    convert = array.__array__
    monkeypatch.setattr(
        array, "__array__", lambda self, *a, **k: conversions.append(1) or convert(self, *a, **k)
    )
    values = [jnp.float32(step) for step in range(1000)]
    bar = rx.progress(range(1000), seconds_between=1e9)
    for step in bar:
        bar.show(loss=values[step])
    assert len(conversions) <= 1


# Notebooks.


def test_in_a_notebook_one_output_is_replaced(clock: Clock, monkeypatch: pytest.MonkeyPatch):
    shown: list[Any] = []

    class Handle:
        def update(self, thing: Any) -> None:
            shown.append(thing)

    def display(thing: Any, display_id: bool) -> Handle:
        assert display_id
        shown.append(thing)
        return Handle()

    notebook = ModuleType("IPython.display")
    notebook.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", notebook)
    console = Console(force_jupyter=True, width=120)
    bar = rx.progress(range(4), "epoch 1", console=console)
    for step in bar:
        clock.pass_(1.0)
        bar.show(loss=1 / (step + 1))
    assert len(shown) == 6  # at the beginning, for each step, and at the end
    monkeypatch.setattr(rich, "_console", console)  # which rich asks for the width
    bundle = shown[-1]._repr_mimebundle_(include=(), exclude=())
    assert "epoch 1" in bundle["text/plain"] and "4/4  loss 0.2500" in bundle["text/plain"]
    assert "<pre" in bundle["text/html"]


# The whole, in a process of its own.


def test_a_real_terminal_is_left_as_it_was(tmp_path: Any):
    """Ctrl-C in the middle of a step, on a pseudo-terminal."""
    pty = pytest.importorskip("pty")
    program = (
        "import os, signal, replicax as rx\n"
        "for step in rx.progress(range(100), 'epoch 1'):\n"
        "    print('step', step)\n"
        "    if step == 1: os.kill(os.getpid(), signal.SIGINT)\n"
    )
    master, slave = pty.openpty()
    environment = os.environ | {
        "PYTHONPATH": str(ROOT / "src"),
        "JAX_PLATFORMS": "cpu",
        "TERM": "xterm",
        "COLUMNS": "100",
    }
    process = subprocess.Popen(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, stdout=slave, stderr=slave
    )
    os.close(slave)
    parts = []
    try:
        while part := os.read(master, 65536):
            parts.append(part)
    except OSError:  # the other end is closed
        pass
    finally:
        os.close(master)
    assert process.wait(timeout=60) != 0
    output = b"".join(parts).decode()
    assert output.count(HIDE) == output.count(SHOW) == 1
    assert "KeyboardInterrupt" in output.partition(SHOW)[2]
    assert "epoch 1: step 1/100" in output and "step 1\r\n" in output


def test_numbers_of_numpy_are_counts_and_other_things_are_refused():
    assert len(rx.progress(range(3), total=np.int64(7), batch_size=np.int32(2))) == 7  # type: ignore[arg-type]
    for wrong in (-1, 2.5, "many"):
        with pytest.raises(ValueError, match="`total` must be a whole number"):
            rx.progress(range(3), total=wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="`seconds_between` is a number"):
        rx.progress(range(3), seconds_between="often")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'pair' must be one number"):
        rx.progress(range(3)).show(pair=[1, 2])
