"""Cross-device operations and their options."""

from tests.misuse.table import context, misuse, per_replica, rx


@misuse(ValueError, r"`bytes_per_pack`.*got -1", r"must be 0 \(the default size\) or mo")
def negative_bytes_per_pack(strategy):
    rx.distribute.experimental.CommunicationOptions(bytes_per_pack=-1)


@misuse(TypeError, r"`bytes_per_pack`.*got 1\.5", r"whole number.*Pass 0 for the default")
def fractional_bytes_per_pack(strategy):
    rx.distribute.experimental.CommunicationOptions(bytes_per_pack=1.5)


@misuse(ValueError, r"`timeout_seconds`.*got 0", r"more than 0, or None")
def no_time_at_all(strategy):
    rx.distribute.experimental.CollectiveHints(timeout_seconds=0)


@misuse(TypeError, r"`timeout_seconds`.*got '30'", r"number|more than 0")
def timeout_as_a_string(strategy):
    rx.distribute.experimental.CommunicationOptions(timeout_seconds="30")


@misuse(ValueError, r"`implementation`.*got 'MPI'", r"must be 'AUTO', 'RING' or 'NCCL'")
def unknown_implementation(strategy):
    rx.distribute.experimental.CommunicationOptions(implementation="MPI")


@misuse(ValueError, r"`num_packs`.*got -1", r"0 \(no packing\) or a positive number")
def negative_number_of_packs(strategy):
    rx.distribute.NcclAllReduce(num_packs=-1)


@misuse(TypeError, r"must be an instance.*got <class", r"NcclAllReduce\(\)")
def class_of_cross_device_ops(strategy):
    rx.distribute.MirroredStrategy(["CPU:0"], cross_device_ops=rx.distribute.NcclAllReduce)


@misuse(TypeError, r"got 'nccl'", r"for example rx\.distribute\.NcclAllReduce\(\)")
def cross_device_ops_by_name(strategy):
    rx.distribute.MirroredStrategy(["CPU:0"], cross_device_ops="nccl")


@misuse(TypeError, r"`accumulation_fn`.*got 'SUM'", r"must be a function")
def accumulation_by_name(strategy):
    rx.distribute.ReductionToOneDevice(accumulation_fn="SUM")


@misuse(TypeError, r"None", r"(?i)reduce_implementation|return")
def reduction_that_returns_nothing(strategy):
    class Forgetful(rx.distribute.CrossDeviceOps):
        def reduce_implementation(self, reduce_op, per_replica_value, destinations, options):
            pass

    forgetful = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"], cross_device_ops=Forgetful())
    forgetful.reduce("SUM", per_replica(forgetful), axis=None)


@misuse(TypeError, r"`options`.*got 'fast'", r"CommunicationOptions")
def all_reduce_with_a_string_as_options(strategy):
    strategy.run(lambda: context().all_reduce("SUM", 1.0, options="fast"))
