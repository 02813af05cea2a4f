// Measures cuBLASLt's algorithms on this machine's GPU (algorithm_search.h). Run by scripts/bench_gpu; not a
// test.
#include <iostream>

#include "tests/bench/algorithm_search.h"

int main(int count, char** arguments) {
  return dtrun::worker::cuda::search_algorithms({arguments + 1, arguments + count}, std::cout);
}
