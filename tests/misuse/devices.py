"""Devices that are not there, and virtual devices."""

from tests.misuse.table import errors, misuse, rx


@misuse(errors.DeviceError, r"no device 'CPU:99'", r"Devices here: CPU:0, CPU:1")
def unknown_cpu(strategy):
    rx.distribute.MirroredStrategy(["CPU:0", "CPU:99"])


@misuse(errors.DeviceError, r"no device", r"set_logical_device_configuration\(.* \* 100")
def more_virtual_devices_than_there_are(strategy):
    rx.distribute.MirroredStrategy(["CPU:99"])


@misuse(errors.DeviceError, r"no device '/gpu:42'", r"Devices here: CPU:0")
def unknown_gpu(strategy):
    rx.distribute.OneDeviceStrategy("/gpu:42")


@misuse(errors.DeviceError, r"'XPU:0' is not a device name", r"Write for example 'GPU:0'")
def unknown_kind_of_device(strategy):
    rx.device("XPU:0")


@misuse(errors.DeviceError, r"another process", r"Devices here: CPU:0")
def device_of_another_task(strategy):
    rx.distribute.OneDeviceStrategy("/job:worker/replica:0/task:3/device:CPU:0")


@misuse(errors.DeviceError, r"CPU:0 more than once", r"device of its own.*Devices here")
def same_device_twice(strategy):
    rx.distribute.MirroredStrategy(["CPU:0", "CPU:0"])


@misuse(errors.DeviceError, r"CPU:1 more than once", r"device of its own.*Devices here")
def same_device_spelled_differently(strategy):
    rx.distribute.MirroredStrategy(["cpu:1", "/job:localhost/replica:0/task:0/device:CPU:1"])


@misuse(TypeError, r"the single device 'CPU:0'", r"Write devices=\['CPU:0'\]")
def one_device_where_a_list_is_needed(strategy):
    rx.distribute.MirroredStrategy("CPU:0")


@misuse(TypeError, r"`devices`.* 2\b", r"list of devices|devices=\[")
def number_of_devices(strategy):
    rx.distribute.MirroredStrategy(2)


@misuse(TypeError, r"got 0 of type int", r"string such as 'GPU:0' or a jax\.Device")
def device_by_number(strategy):
    rx.distribute.MirroredStrategy([0, 1])


@misuse(TypeError, r"got None", r"string such as 'GPU:0' or a jax\.Device")
def one_device_strategy_without_a_device(strategy):
    rx.distribute.OneDeviceStrategy(None)


@misuse(TypeError, r"got \['CPU:0'\]", r"string such as 'GPU:0' or a jax\.Device")
def list_as_parameter_device(strategy):
    rx.distribute.experimental.CentralStorageStrategy(["CPU:0"], parameter_device=["CPU:0"])


@misuse(RuntimeError, r"started already with 8", r"at the top.*JAX_NUM_CPU_DEVICES=3")
def virtual_devices_after_the_start(strategy):
    cpu = rx.config.list_physical_devices("CPU")[0]
    rx.config.set_logical_device_configuration(cpu, [rx.config.LogicalDeviceConfiguration()] * 3)


@misuse(TypeError, r"`device` must be.*got 'CPU:0'", r"list_physical_devices\('CPU'\)\[0")
def virtual_devices_of_a_name(strategy):
    rx.config.set_logical_device_configuration("CPU:0", [])


@misuse(ValueError, r"GPU:0", r"Pass rx\.config\.list_physical_devices\('CPU'\)")
def virtual_devices_of_a_gpu(strategy):
    gpu = rx.config.PhysicalDevice("/physical_device:GPU:0", "GPU")
    rx.config.set_logical_device_configuration(gpu, [rx.config.LogicalDeviceConfiguration()])


@misuse(ValueError, r"`logical_devices` is empty", r"LogicalDeviceConfiguration\(\)\] \*")
def no_virtual_devices(strategy):
    rx.config.set_logical_device_configuration(rx.config.list_physical_devices("CPU")[0], [])


@misuse(TypeError, r"holds 512", r"must be a rx\.config\.LogicalDeviceConfiguration\(\)")
def virtual_device_as_a_number(strategy):
    rx.config.set_logical_device_configuration(rx.config.list_physical_devices("CPU")[0], [512])


@misuse(ValueError, r"`memory_limit` does not apply", r"leave it out")
def memory_limit_of_a_cpu(strategy):
    limited = rx.config.LogicalDeviceConfiguration(memory_limit=512)
    rx.config.set_logical_device_configuration(rx.config.list_physical_devices("CPU")[0], [limited])


@misuse(ValueError, r"got 'XPU'", r"must be 'CPU', 'GPU' or 'TPU', or None for all")
def list_an_unknown_kind(strategy):
    rx.config.list_logical_devices("XPU")


@misuse(ValueError, r"shape \(2,\).* 3 items", r"Pass one number, or as many")
def constant_that_does_not_fit_its_shape(strategy):
    rx.constant([1.0, 2.0, 3.0], shape=(2,))
