#define DTRUN_LOOPS baseline
#define DTRUN_LOOPS_NAME "baseline"
#include "worker/vector/loops_impl.h"
