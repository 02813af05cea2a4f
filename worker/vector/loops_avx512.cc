#define DTRUN_LOOPS avx512
#define DTRUN_LOOPS_NAME "AVX-512"
#include "worker/vector/loops_impl.h"
