#define DTRUN_LOOPS avx2
#define DTRUN_LOOPS_NAME "AVX2"
#include "worker/vector/loops_impl.h"
