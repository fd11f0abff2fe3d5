"""Data sets: what they are made of, what their functions return, how they are distributed."""

import pathlib
import pickle
import tempfile

import numpy as np

from tests.misuse.table import errors, misuse, rx

Dataset = rx.data.Dataset
POLICY = rx.data.experimental.AutoShardPolicy


def numbers(count=8):
    return Dataset.range(count)


def distribute(strategy, dataset, **options):
    return strategy.experimental_distribute_dataset(dataset, **options)


def asking_for(policy):
    options = rx.data.Options()
    options.experimental_distribute.auto_shard_policy = policy
    return options


def on_workers(dataset, workers=2):
    """Distributes over simulated workers."""
    import jax

    from replicax._src.data.distributed import InputLayout, InputOptions, distributed_dataset

    layout = InputLayout(tuple(jax.devices("cpu")[:2]), workers, 0)
    return distributed_dataset(dataset, layout, InputOptions())


# ------------------------------------------------------------------ sources


@misuse(TypeError, r"not by Dataset\(", r"from_tensor_slices")
def a_data_set_by_its_class(strategy):
    Dataset([1, 2, 3])


@misuse(ValueError, r"tensors\['x'\] has 3, tensors\['y'\] has 4", r"must have as many rows")
def slices_of_different_lengths(strategy):
    Dataset.from_tensor_slices({"x": np.arange(3), "y": np.arange(4)})


@misuse(ValueError, r"single value without rows: np\.int32\(5\)", r"use from_tensors")
def slices_of_a_number(strategy):
    Dataset.from_tensor_slices(5)


@misuse(ValueError, r"at least one array; got none", r"at least one array")
def slices_of_nothing(strategy):
    Dataset.from_tensor_slices(())


@misuse(ValueError, r"rows have different lengths: \[\[1, 2\], \[3\]\]", r"padded_batch")
def slices_of_ragged_lists(strategy):
    Dataset.from_tensor_slices([[1, 2], [3]])


@misuse(TypeError, r"array of Python objects.*holds None", r"numbers, text or bytes")
def slices_of_objects(strategy):
    Dataset.from_tensor_slices(np.array([None, 1], dtype=object))


@misuse(TypeError, r"None cannot be in an element", r"arrays, numbers and text")
def tensors_with_nothing_in_them(strategy):
    Dataset.from_tensors({"x": 1, "y": None})


@misuse(TypeError, r"got <generator object", r"from_generator\(g\), without the parentheses")
def a_generator_that_was_called(strategy):
    Dataset.from_generator(x for x in range(3))


@misuse(TypeError, r"from_generator\(.*it returned 5", r"return something to iterate over")
def a_generator_function_that_returns_a_number(strategy):
    list(Dataset.from_generator(lambda: 5))


@misuse(TypeError, r"yielded None as item 1", r"item 1")
def a_generator_that_yields_nothing(strategy):
    list(Dataset.from_generator(lambda: iter([1, None])))


@misuse(OSError, r"disk", r"iterator of from_generator\(.*rows\), at item 1")
def a_generator_that_raises(strategy):
    def rows():
        yield 1
        raise OSError("the disk is gone")

    list(Dataset.from_generator(rows).batch(2))


@misuse(TypeError, r"got both", r"either output_signature, or the older")
def two_kinds_of_signature(strategy):
    Dataset.from_generator(lambda: [1], "int32", output_signature=rx.TensorSpec([], "int32"))


@misuse(TypeError, r"output_signature\[1\].*got 'int32'", r"rx\.TensorSpec\(shape, dtype\)")
def a_signature_of_names(strategy):
    Dataset.from_generator(lambda: [1], output_signature=(rx.TensorSpec([]), "int32"))


@misuse(TypeError, r"item 0 of .*float32.*int32 of the output_signature", r"convert")
def an_item_of_another_dtype(strategy):
    list(Dataset.from_generator(lambda: [1.5], output_signature=rx.TensorSpec([], "int32")))


@misuse(TypeError, r"item 0 of .*shape \(2,\).*says \(3,\)", r"None stands for any size")
def an_item_of_another_shape(strategy):
    list(Dataset.from_generator(lambda: [[1, 2]], output_signature=rx.TensorSpec([3], "int32")))


@misuse(TypeError, r"item 0.*structure.*tuple\(\., \.\)", r"signature is dict\('x': \.\)")
def an_item_of_another_structure(strategy):
    signature = {"x": rx.TensorSpec([], "int32")}
    list(Dataset.from_generator(lambda: [(1, 2)], output_signature=signature))


@misuse(RuntimeError, r"was read already", r"from_generator\(function_that_returns_an_iterator\)")
def an_iterator_read_twice(strategy):
    dataset = Dataset.from_source(iter([np.arange(2)] * 3))
    list(dataset)
    list(dataset)


@misuse(ValueError, r"got 0 arguments", r"`start, stop`")
def a_range_of_nothing(strategy):
    Dataset.range()


@misuse(TypeError, r"range takes an integer; got 1\.5", r"an integer")
def a_range_to_a_fraction(strategy):
    Dataset.range(1.5)


@misuse(ValueError, r"range\(0, 1180591620717411303424\)", r"range\(n\)\.repeat\(\)")
def a_range_of_more_than_64_bits(strategy):
    Dataset.range(2**70)


@misuse(
    ValueError, r"got range\(-9223372036854775808, 9223372036854775807\)", r"fewer than 2\*\*63"
)
def a_range_that_is_too_long(strategy):
    Dataset.range(-(2**63), 2**63 - 1)


@misuse(ValueError, r"step that is not 0", r"takes a step")
def a_range_without_a_step(strategy):
    Dataset.range(0, 5, 0)


@misuse(
    ValueError, r"more values than an array can have: \[4611686018427387904\]", r"check its sizes"
)
def a_feature_of_absurd_length(strategy):
    rx.io.FixedLenFeature([2**62], "int64")


@misuse(TypeError, r"shape of a FixedLenFeature.*Received \[2\.5\]", r"a list of sizes")
def a_feature_of_a_broken_length(strategy):
    rx.io.FixedLenFeature([2.5], "int64")


@misuse(FileNotFoundError, r"No files match the pattern '.*none-such", r"pattern.*\(in ")
def a_pattern_without_files(strategy):
    Dataset.list_files("/none-such/*.tfrecord")


@misuse(FileNotFoundError, r"no file '/none-such/a\.txt'", r"Check the path")
def a_file_that_is_not_there(strategy):
    list(rx.data.TextLineDataset("/none-such/a.txt"))


@misuse(ValueError, r"list is empty", r"at least one file name")
def no_file_names(strategy):
    rx.data.TFRecordDataset([])


@misuse(TypeError, r"got 3", r"one text, a list of texts, or a data set of texts")
def a_number_for_a_file_name(strategy):
    rx.data.TFRecordDataset(3)


@misuse(ValueError, r"compression_type='BZIP'", r"'GZIP', 'ZLIB'")
def an_unknown_compression(strategy):
    list(rx.data.TextLineDataset(__file__, "BZIP"))


@misuse(errors.DataLossError, r"data\.py.*0", r"not a TFRecord|corrupt|damage|checksum|length|copy")
def a_file_of_something_else(strategy):
    list(rx.data.TFRecordDataset(__file__))


@misuse(errors.DataLossError, r"cut\.tfrecord", r"(?i)cut off|truncated|ends|copy")
def a_truncated_file(strategy):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "cut.tfrecord"
        with rx.io.TFRecordWriter(str(path)) as writer:
            writer.write(b"12345678")
        path.write_bytes(path.read_bytes()[:-3])
        list(rx.data.TFRecordDataset(str(path)))


# ------------------------------------------------------------------ operations


@misuse(ValueError, r"batch\(\).*at least 1; got 0", r"at least 1")
def batches_of_nothing(strategy):
    numbers().batch(0)


@misuse(TypeError, r"batch\(\) takes an integer; got 2\.5", r"an integer")
def batches_of_a_fraction(strategy):
    numbers().batch(2.5)


@misuse(ValueError, r"int32\[2\], int32\[1\]", r"padded_batch\(\), which fills up")
def batches_of_different_shapes(strategy):
    list(Dataset.from_generator(lambda: iter([[1, 2], [3]])).batch(2))


@misuse((TypeError, ValueError), r"structure.*dict\('a': \.\).*dict\('b': \.\)", r"one structure")
def batches_of_different_structures(strategy):
    list(Dataset.from_generator(lambda: iter([{"a": 1}, {"b": 2}])).batch(2))


@misuse(ValueError, r"up to \(2,\).*\(3,\)", r"does not fit")
def padding_to_less_than_there_is(strategy):
    list(Dataset.from_generator(lambda: iter([[1, 2, 3]])).padded_batch(1, [2]))


@misuse(ValueError, r"keys \['z'\].*\['x'\]", r"those of the elements")
def padding_of_other_keys(strategy):
    Dataset.from_tensor_slices({"x": [[1]]}).padded_batch(1, {"z": [2]})


@misuse(ValueError, r"single value without rows", r"Call \.batch\(\.\.\.\) first")
def rows_of_single_values(strategy):
    list(numbers().unbatch())


@misuse(ValueError, r"shuffle\(\).*at least 1; got 0", r"at least 1")
def a_shuffle_without_a_buffer(strategy):
    numbers().shuffle(0)


@misuse(ValueError, r"repeats forever", r"Call shuffle before repeat")
def a_shuffle_of_everything_without_end(strategy):
    numbers().repeat().shuffle(None)


@misuse(ValueError, r"got shard\(2, 2\)", r"from 0 to num_shards - 1")
def a_shard_that_there_is_not(strategy):
    numbers().shard(2, 2)


@misuse(TypeError, r"these are .*int64.*those are .*float32", r"same structure and dtypes")
def a_concatenation_of_other_dtypes(strategy):
    numbers().concatenate(Dataset.from_tensor_slices([1.0]))


@misuse(TypeError, r"got a list", r"Write zip\(\*datasets\)")
def a_zip_of_a_list(strategy):
    Dataset.zip([numbers(), numbers()])


@misuse(TypeError, r"zip takes data sets; got .*array", r"takes data sets")
def a_zip_of_arrays(strategy):
    Dataset.zip(numbers(), np.arange(3))


@misuse(TypeError, r"map\(\).*got 3", r"lambda x: \.\.\.")
def a_map_of_a_number(strategy):
    numbers().map(3)


@misuse(TypeError, r"forgets \(.*data\.py:\d+\).*map\(\), returned None", r"`return` missing")
def a_map_that_returns_nothing(strategy):
    def forgets(x):
        x = x + 1

    list(numbers().map(forgets))


@misuse(TypeError, r"object object.*cannot be in an element", r"arrays, numbers and text")
def a_map_that_returns_an_object(strategy):
    list(numbers().map(lambda x: object()))


@misuse(TypeError, r"takes 1 positional argument but 2", r"function of map\(\)")
def a_map_with_too_few_arguments(strategy):
    list(Dataset.zip(numbers(), numbers()).map(lambda pair: pair))


@misuse(RuntimeError, r"StopIteration", r"map\(\)")
def a_map_that_raises_stop_iteration(strategy):
    empty = iter(())
    list(numbers().map(lambda x: next(empty)))


@misuse(ValueError, r"given 8 elements.*shape \(\)", r"must return as many")
def a_vectorized_map_that_returns_one(strategy):
    list(numbers().map(lambda x: x.sum(), vectorized=True).batch(8))


@misuse(ValueError, r"not both", r"either vectorized=True .* or on_device=True")
def a_map_of_both_kinds(strategy):
    numbers().map(abs, vectorized=True, on_device=True)


@misuse(ValueError, r"read-only", r"read-only")
def a_map_that_writes_to_the_data(strategy):
    def in_place(row):
        row += 1
        return row

    list(Dataset.from_tensor_slices(np.zeros((3, 2))).map(in_place))


@misuse(TypeError, r"filter\(\).*got array\(3\)", r"must return one bool")
def a_filter_that_returns_a_number(strategy):
    list(numbers().filter(lambda x: 3))


@misuse(TypeError, r"flat_map\(\).*got np\.int64\(0\)", r"must return a data set")
def a_flat_map_without_a_data_set(strategy):
    list(numbers().flat_map(lambda x: x))


@misuse(TypeError, r"apply\(\).*got None", r"must return a data set")
def an_apply_without_a_data_set(strategy):
    numbers().apply(lambda dataset: None)


@misuse(TypeError, r"repeats forever", r"no length")
def the_length_of_the_endless(strategy):
    len(numbers().repeat())


@misuse(TypeError, r"not known before it is read", r"sum\(1 for _ in dataset\)")
def the_length_of_the_unknown(strategy):
    len(numbers().filter(lambda x: True))


@misuse(errors.OutOfRangeError, r"no more elements", r"all 2 were read")
def the_element_after_the_last(strategy):
    iterator = iter(numbers(2))
    for _ in range(3):
        iterator.get_next()


@misuse(ValueError, r"Optional has no value", r"ask has_value\(\) first")
def the_value_of_an_empty_optional(strategy):
    iter(numbers(0)).get_next_as_optional().get_value()


@misuse((FileNotFoundError, ValueError), r"none-such", r"folder|directory")
def a_cache_in_a_folder_that_is_not_there(strategy):
    list(numbers().cache("/none-such/cache"))


@misuse(ValueError, r"old' is no cache file.*it is a pickle", r"Delete it.*name another file")
def a_cache_of_an_older_version(strategy):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "old"
        path.write_bytes(pickle.dumps([1, 2]))
        list(numbers().cache(path))


@misuse(TypeError, r"windows of window\(\)", r"flat_map\(lambda window: window\.batch")
def windows_in_a_cache_file(strategy):
    with tempfile.TemporaryDirectory() as folder:
        list(numbers().window(2).cache(pathlib.Path(folder) / "kept"))


@misuse(TypeError, r"with_options\(\).*got \{", r"takes rx\.data\.Options")
def options_of_a_data_set_as_a_dict(strategy):
    numbers().with_options({})


@misuse(AttributeError, r"no option 'auto_shard_policy'", r"experimental_distribute")
def an_option_in_the_wrong_place(strategy):
    rx.data.Options().auto_shard_policy = POLICY.DATA


@misuse(TypeError, r"auto_shard_policy.*got 'DATA'", r"AutoShardPolicy")
def a_policy_by_name(strategy):
    rx.data.Options().experimental_distribute.auto_shard_policy = "DATA"


# ------------------------------------------------------------------ states


@misuse(TypeError, r"got 5", r"what get_state returned")
def a_state_that_is_none(strategy):
    iter(numbers()).set_state(5)


@misuse(ValueError, r"another data set", r"same pipeline over the same data")
def a_state_of_another_data_set(strategy):
    iter(numbers().batch(2)).set_state(iter(numbers().batch(4)).get_state())


@misuse(ValueError, r"workers.*2", r"AutoShardPolicy\.DATA")
def a_state_of_other_workers(strategy):
    dataset = numbers().batch(4).with_options(asking_for(POLICY.OFF))
    state = iter(on_workers(dataset)).get_state()
    iter(distribute(strategy, dataset)).set_state(state)


# ------------------------------------------------------------------ distributing


@misuse(ValueError, r"not batched.*single rows of RangeDataset", r"\.batch\(global_batch_size\)")
def rows_instead_of_batches(strategy):
    distribute(strategy, numbers())


@misuse(ValueError, r"not batched.*TensorSliceDataset", r"\.batch\(global_batch_size\)")
def rows_of_arrays_instead_of_batches(strategy):
    distribute(strategy, Dataset.from_tensor_slices(np.zeros((4, 3))).shuffle(4).repeat())


@misuse(ValueError, r"single value without rows", r"Call \.batch\(\.\.\.\) first")
def single_values_of_a_generator(strategy):
    list(distribute(strategy, Dataset.from_generator(lambda: iter([1, 2]))))


@misuse(ValueError, r"element\[0\] has 3, element\[1\] has 4", r"as many rows")
def batches_with_different_numbers_of_rows(strategy):
    list(Dataset.from_tensors((np.arange(3), np.arange(4))).unbatch())


@misuse(TypeError, r"int64\[3\] is no data set", r"from_tensor_slices\(arrays\)\.batch\(")
def an_array_instead_of_a_data_set(strategy):
    distribute(strategy, np.arange(3))


@misuse(
    TypeError, r"\{'x': float32\[2\]\} is no data set", r"from_tensor_slices\(arrays\)\.batch\("
)
def a_dict_of_arrays_instead_of_a_data_set(strategy):
    distribute(strategy, {"x": np.zeros(2, np.float32)})


@misuse(TypeError, r"'data\.tfrecord' is no data set", r"TFRecordDataset\(names\)")
def a_file_name_instead_of_a_data_set(strategy):
    distribute(strategy, "data.tfrecord")


@misuse(TypeError, r"distributed", r"already|iterate|once")
def a_distributed_data_set_again(strategy):
    distribute(strategy, distribute(strategy, numbers().batch(4)))


@misuse(TypeError, r"DistributedDataset", r"strategy\.experimental_distribute_dataset\(dataset\)")
def a_distributed_data_set_by_its_class(strategy):
    rx.distribute.DistributedDataset(numbers(), strategy, None)


@misuse(TypeError, r"no known length.*forever", r"forever")
def the_length_of_an_endless_distributed_data_set(strategy):
    len(distribute(strategy, numbers().batch(4).repeat()))


@misuse(errors.WrongContextError, r"replica context", r"before strategy\.run")
def distributing_in_replica_context(strategy):
    strategy.run(lambda: distribute(strategy, numbers().batch(4)))


@misuse(TypeError, r"`options` must be .*InputOptions; got True", r"rx\.distribute\.InputOptions")
def input_options_as_a_bool(strategy):
    distribute(strategy, numbers().batch(4), options=True)


@misuse(TypeError, r"got 'PER_WORKER'", r"InputReplicationMode\.PER_WORKER")
def a_replication_mode_by_name(strategy):
    rx.distribute.InputOptions(experimental_replication_mode="PER_WORKER")


@misuse(ValueError, r"buffer_size.*got -1", r"0 or more")
def a_negative_buffer(strategy):
    rx.distribute.InputOptions(experimental_per_replica_buffer_size=-1)


@misuse(NotImplementedError, r"PER_REPLICA", r"distribute_datasets_from_function")
def a_data_set_for_each_replica_of_one(strategy):
    mode = rx.distribute.InputReplicationMode.PER_REPLICA
    options = rx.distribute.InputOptions(experimental_replication_mode=mode)
    distribute(strategy, numbers().batch(4), options=options)


@misuse(ValueError, r"place_dataset_on_device", r"PER_REPLICA")
def a_data_set_on_the_device_for_the_worker(strategy):
    options = rx.distribute.InputOptions(
        experimental_fetch_to_device=False, experimental_place_dataset_on_device=True
    )
    strategy.distribute_datasets_from_function(lambda context: numbers().batch(4), options)


@misuse(ValueError, r"nothing to fetch", r"experimental_fetch_to_device=False")
def a_data_set_on_the_device_that_is_fetched(strategy):
    options = rx.distribute.InputOptions(
        experimental_replication_mode=rx.distribute.InputReplicationMode.PER_REPLICA,
        experimental_place_dataset_on_device=True,
    )
    strategy.distribute_datasets_from_function(lambda context: numbers().batch(4), options)


@misuse(TypeError, r"got <BatchDataset", r"goes to experimental_distribute_dataset")
def a_data_set_instead_of_a_function(strategy):
    strategy.distribute_datasets_from_function(numbers().batch(4))


@misuse(TypeError, r"returned None", r"must return a data set for the InputContext")
def a_data_set_function_that_returns_nothing(strategy):
    strategy.distribute_datasets_from_function(lambda context: None)


@misuse(ValueError, r"global_batch_size 7 is not divisible by the 2 replicas", r"for example 8")
def a_global_batch_that_does_not_divide(strategy):
    strategy.distribute_datasets_from_function(
        lambda context: numbers().batch(context.get_per_replica_batch_size(7))
    )


@misuse(OverflowError, r"element\['id'\].*1099511627776", r"jax_enable_x64|map\(\)")
def numbers_that_do_not_fit(strategy):
    list(distribute(strategy, Dataset.from_tensor_slices({"id": [2**40]}).batch(1)))


@misuse(TypeError, r"text", r"on_device")
def text_for_a_function_on_the_device(strategy):
    dataset = Dataset.from_tensor_slices(["a", "b"]).batch(2).map(lambda x: x, on_device=True)
    list(distribute(strategy, dataset))


@misuse(ZeroDivisionError, r"division", r"the function of map\(\)")
def a_map_that_raises_in_the_thread(strategy):
    for _ in distribute(strategy, numbers().map(lambda x: 1 / int(x)).batch(4)):
        pass


@misuse(
    ValueError, r"FILE, but the data set is not read from files.*RangeDataset", r"DATA, or AUTO"
)
def files_asked_for_where_there_are_none(strategy):
    on_workers(numbers().batch(4).with_options(asking_for(POLICY.FILE)))


@misuse(ValueError, r"1 file\(s\) for 2 workers", r"Write more files, or use AutoShardPolicy\.DATA")
def fewer_files_than_workers(strategy):
    lines = rx.data.TextLineDataset(__file__).batch(4)
    on_workers(lines.with_options(asking_for(POLICY.FILE)))
