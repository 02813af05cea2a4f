// The kernel as the host's compiler makes it.
#include "tests/bench/bits.cu"
