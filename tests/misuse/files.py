"""Files, images, saved data sets, and operations that few pipelines need."""

import pathlib
import tempfile

import numpy as np

from tests.misuse.table import errors, misuse, rx

Dataset = rx.data.Dataset


@misuse(errors.NotFoundError, r"There is no folder 'no-such-folder'", r"There is no folder")
def a_folder_that_is_not_there(strategy):
    rx.io.gfile.listdir("no-such-folder")


@misuse(errors.AlreadyExistsError, r"is there already", r"overwrite=True")
def a_copy_over_another_file(strategy):
    rx.io.gfile.copy(__file__, __file__)


@misuse(errors.FailedPreconditionError, r"is a file", r"cannot be made a folder")
def a_folder_in_the_place_of_a_file(strategy):
    rx.io.gfile.makedirs(__file__)


@misuse(errors.PermissionDeniedError, r"not open for writing", r"its mode is 'r'")
def writing_to_what_is_read(strategy):
    rx.io.gfile.GFile(__file__).write("x")


@misuse(errors.NotFoundError, r"no saved data set in '.*nowhere'", r"dataset\.save\(path\)")
def a_data_set_that_was_not_saved(strategy):
    Dataset.load("nowhere")


@misuse(FileExistsError, r"has other things in it: 'mine\.txt'", r"Name another path")
def saving_into_a_folder_of_others(strategy):
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "mine.txt").write_text("mine")
        Dataset.range(3).save(folder)


@misuse(ValueError, r"2 boundaries and 2 sizes", r"a batch size for each bucket")
def buckets_with_too_few_sizes(strategy):
    Dataset.range(3).bucket_by_sequence_length(len, [2, 4], [8, 8])


@misuse(ValueError, r"got window_size and window_size_func", r"takes either")
def windows_of_two_sizes(strategy):
    Dataset.range(3).group_by_window(lambda x: x, lambda key, some: some, 2, lambda key: 2)


@misuse(TypeError, r"must return a pair.*got", r"the new state and the element")
def a_scan_that_returns_one(strategy):
    list(Dataset.range(3).scan(0, lambda state, x: state))


@misuse(TypeError, r"float32", r"int32, int64 or text")
def unique_floats(strategy):
    Dataset.from_tensor_slices(np.ones(3, np.float32)).unique()


@misuse(ValueError, r"the data set number 5, and there are 1", r"counted from 0")
def a_choice_that_is_not_there(strategy):
    choices = Dataset.from_tensor_slices(np.array([5]))
    list(Dataset.choose_from_datasets([Dataset.range(3)], choices))


@misuse(NotImplementedError, r"no gradient tape", r"rx\.value_and_grad\(loss_fn, variables\)")
def a_tape(strategy):
    rx.GradientTape()


@misuse(ValueError, r"they begin with b'text'", r"JPEG or PNG or GIF or BMP")
def bytes_that_are_no_image(strategy):
    rx.image.decode_image(b"text")


@misuse(ValueError, r"6 x 6 from \(0, 0\) on", r"the image has 4 x 4")
def a_crop_that_is_too_large(strategy):
    rx.image.crop_to_bounding_box(np.zeros((4, 4, 3)), 0, 0, 6, 6)
