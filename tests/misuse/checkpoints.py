"""Checkpoints with paths, names and numbers that are none."""

import tempfile
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from tests.misuse.table import misuse, rx

A_PATH = r'a path, as "run/checkpoints" or a pathlib\.Path'


def checkpoint():
    return rx.train.Checkpoint(step=rx.Variable(1))


def manager(**kwargs):
    """One in a folder that is gone at the end, as nothing is saved there."""
    with tempfile.TemporaryDirectory() as folder:
        return rx.train.CheckpointManager(checkpoint(), f"{folder}/run", **kwargs)


@misuse(ValueError, r"`root` must be an object.*got 5", r"rx\.train\.Checkpoint\(step=")
def a_number_as_the_root(strategy):
    rx.train.Checkpoint(5)


@misuse(ValueError, r"`root` must be an object", r"rx\.train\.Checkpoint\(step=")
def an_array_as_the_root(strategy):
    rx.train.Checkpoint(jnp.ones(3))


@misuse(ValueError, r"`root` must be an object", r"rx\.train\.Checkpoint\(step=")
def a_variable_as_the_root(strategy):
    rx.train.Checkpoint(rx.Variable(1.0))


@misuse(TypeError, r"`file_prefix`.*got None", A_PATH)
def save_to_none(strategy):
    checkpoint().save(None)


@misuse(TypeError, r"`file_prefix`.*got b'run/ckpt'", A_PATH)
def save_to_bytes(strategy):
    checkpoint().save(b"run/ckpt")


@misuse(TypeError, r"`file_prefix`.*got 5", A_PATH)
def write_to_a_number(strategy):
    checkpoint().write(5)


@misuse(ValueError, r"`file_prefix`.*got 'a\\x00b'", r"a path of the file system")
def write_to_a_path_with_nul(strategy):
    checkpoint().write("a\0b")


@misuse(ValueError, r"`file_prefix`.*got 'gs://a/b'", r"a path of the file system")
def save_to_an_address(strategy):
    checkpoint().save("gs://a/b")


@misuse(ValueError, r"without backslashes.*got 'a", r"Rename the folder")
def save_to_a_path_with_a_backslash(strategy):
    checkpoint().save("a\\b")


@misuse(ValueError, r"got ''", r"Write, for example, 'ckpt'")
def write_to_nothing(strategy):
    checkpoint().write("")


@misuse(
    ValueError, r"`file_prefix` must end in the name.*got '\.'", r"Write, for example, '\./ckpt'"
)
def write_to_the_working_directory(strategy):
    checkpoint().write(".")


@misuse(ValueError, r"the program works in", r"Write to a new folder, as '/.*/ckpt'")
def write_to_the_working_directory_by_its_name(strategy):
    checkpoint().write(Path.cwd())


@misuse(ValueError, r"the program works in", r"Write to a new folder, as '/ckpt'")
def write_to_the_root_of_all(strategy):
    checkpoint().write("/")


@misuse(TypeError, r"`save_path`.*got 5", A_PATH)
def restore_a_number(strategy):
    checkpoint().restore(5)


@misuse(TypeError, r"`save_path`.*got None", A_PATH)
def read_none(strategy):
    checkpoint().read(None)


@misuse(TypeError, r"`checkpoint_dir`.*got None", A_PATH)
def latest_checkpoint_of_none(strategy):
    rx.train.latest_checkpoint(None)


@misuse(TypeError, r"`checkpoint_dir`.*got 7", A_PATH)
def list_checkpoints_of_a_number(strategy):
    rx.train.list_checkpoints(7)


@misuse(TypeError, r"`checkpoint_dir`.*got None", A_PATH)
def iterate_over_the_checkpoints_of_none(strategy):
    next(rx.train.checkpoints_iterator(None, timeout=0))


@misuse(TypeError, r"`ckpt_dir_or_file`.*got None", A_PATH)
def list_variables_of_none(strategy):
    rx.train.list_variables(None)


@misuse(TypeError, r"`directory`.*got None", A_PATH)
def a_manager_without_a_directory(strategy):
    rx.train.CheckpointManager(checkpoint(), None)


@misuse(ValueError, r"`checkpoint_name`.*without '/' .*; got '\.\./x'", r'checkpoint_name="ckpt"')
def a_checkpoint_name_that_leads_out(strategy):
    manager(checkpoint_name="../x")


@misuse(ValueError, r"`checkpoint_name`.*without .*got 'a.+b'", r'checkpoint_name="ckpt"')
def a_checkpoint_name_with_a_backslash(strategy):
    manager(checkpoint_name="a\\b")


@misuse(ValueError, r"`checkpoint_name`.*got ''", r'checkpoint_name="ckpt"')
def an_empty_checkpoint_name(strategy):
    manager(checkpoint_name="")


@misuse(TypeError, r"`checkpoint_name`.*got 3", r'a text, as "ckpt"')
def a_number_as_checkpoint_name(strategy):
    manager(checkpoint_name=3)


@misuse(ValueError, r"`checkpoint_number` must be at least 0; got -1", r"Leave it out to count")
def save_under_a_negative_number(strategy):
    manager().save(-1)


@misuse(TypeError, r"`checkpoint_number`.*got 'x'", r"must be a whole number, or a variable")
def save_under_a_text(strategy):
    manager().save("x")


@misuse(TypeError, r"`checkpoint_number`.*got nan", r"must be a whole number, or a variable")
def save_under_nan(strategy):
    manager().save(float("nan"))


@misuse(TypeError, r"`checkpoint_number`.*got array\(1\.5\)", r"must be a whole number")
def save_under_an_array_of_a_fraction(strategy):
    manager().save(np.asarray(1.5))


@misuse(TypeError, r"`checkpoint_interval`.*got 'x'", r"must be a whole number")
def a_text_as_the_interval(strategy):
    manager(checkpoint_interval="x")


@misuse(TypeError, r"`step_counter`.*got 'x'", r"must be a variable that counts steps")
def a_step_counter_that_does_not_count(strategy):
    manager(step_counter="x")


@misuse(TypeError, r"`init_fn`.*got 5", r"must be a function of no arguments")
def an_init_fn_that_is_no_function(strategy):
    manager(init_fn=5)


@misuse(TypeError, r"`last_checkpoint_step`.*got 'x'", r"must be a whole number")
def a_last_step_that_is_no_number(strategy):
    manager(last_checkpoint_step="x")


@misuse(ValueError, r"`checkpoint_interval`.*got 0", r"must be at least 1")
def no_steps_as_the_interval(strategy):
    manager(save_interval=0)


@misuse(TypeError, r"`keep_checkpoint_every_n_hours`.*got 'x'", r"a number of hours or None")
def a_text_as_hours(strategy):
    manager(keep_checkpoint_every_n_hours="x")


@misuse(ValueError, r"`keep_checkpoint_every_n_hours`.*got nan", r"must be at least 0")
def nan_as_hours(strategy):
    manager(keep_checkpoint_every_n_hours=float("nan"))
