// The kernels for any processor that the build is for.
#define DTRUN_KERNELS baseline
#define DTRUN_KERNELS_NAME "baseline"
#include "worker/device/cpu/planned/kernels_impl.h"
