// The kernels for any processor that the build is for.
#define DTRUN_KERNELS baseline
#define DTRUN_KERNELS_NAME "baseline"
#define DTRUN_VECTOR 4
#include "worker/device/cpu/planned/kernels_impl.h"
