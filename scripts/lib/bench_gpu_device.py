#!/usr/bin/env python3
"""What a GPU is, as its driver or cuDNN says: for scripts/bench_gpu, in a process of its own, since a broken driver may
hang. Prints one JSON object; {"skipped": why} where there is none.

  bench_gpu_device.py driver
  bench_gpu_device.py cudnn LIBRARY
"""

import ctypes
import json
import sys

# CUdevice_attribute, of cuda.h.
ATTRIBUTES = {"multiprocessors": 16, "clock_khz": 13, "memory_clock_khz": 36, "memory_bus_bits": 37, "l2_bytes": 38,
              "major": 75, "minor": 76, "registers_per_sm": 82, "shared_memory_per_block_bytes": 97}
# cudnn_graph.h
DEVICEPROP_DESCRIPTOR, DEVICE_ID, JSON_REPRESENTATION, INT32, CHAR = 38, 2700, 2702, 23, 24
MOST_CHARACTERS = 1 << 16


def driver():
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as failure:
        return {"skipped": str(failure)}
    device, version, memory, name = ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t(), ctypes.create_string_buffer(256)
    for call in (lambda: cuda.cuInit(0), lambda: cuda.cuDeviceGet(ctypes.byref(device), 0),
                 lambda: cuda.cuDriverGetVersion(ctypes.byref(version)),
                 lambda: cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), device), lambda: cuda.cuDeviceGetName(name, 256, device)):
        status = call()
        if status != 0:
            return {"skipped": f"the driver answers with error {status}"}
    found = {"name": name.value.decode(errors="replace"), "memory_bytes": memory.value,
             "driver_cuda": f"{version.value // 1000}.{version.value % 1000 // 10}"}
    for attribute, number in ATTRIBUTES.items():
        value = ctypes.c_int()
        if cuda.cuDeviceGetAttribute(ctypes.byref(value), number, device) == 0:
            found[attribute] = value.value
    found["compute_capability"] = f"{found.pop('major', 0)}.{found.pop('minor', 0)}"
    return {**dict.fromkeys(("multiprocessors", "clock_khz", "l2_bytes"), 0), **found}


def cudnn(path):
    """The description of GPU 0 that plans can be made from where there is no GPU (docs/gpu.md)."""
    library = ctypes.CDLL(path)
    descriptor, gpu, written = ctypes.c_void_p(), ctypes.c_int32(0), ctypes.c_int64()
    text = ctypes.create_string_buffer(MOST_CHARACTERS)
    calls = (lambda: library.cudnnBackendCreateDescriptor(DEVICEPROP_DESCRIPTOR, ctypes.byref(descriptor)),
             lambda: library.cudnnBackendSetAttribute(descriptor, DEVICE_ID, INT32, ctypes.c_int64(1), ctypes.byref(gpu)),
             lambda: library.cudnnBackendFinalize(descriptor),
             lambda: library.cudnnBackendGetAttribute(descriptor, JSON_REPRESENTATION, CHAR, ctypes.c_int64(MOST_CHARACTERS),
                                                      ctypes.byref(written), text))
    for call in calls:
        status = call()
        if status != 0:
            return {"skipped": f"cuDNN answers with status {status}"}
    return {"json": text.value.decode(errors="replace")}


if __name__ == "__main__":
    print(json.dumps(cudnn(sys.argv[2]) if sys.argv[1] == "cudnn" else driver()))
