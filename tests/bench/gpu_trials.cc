// Tries parts of jobs out on this machine's GPU (trials.h). Run by scripts/bench_gpu; not a test.
#include <iostream>

#include "tests/bench/trials.h"

int main(int count, char** arguments) {
  return dtrun::worker::cuda::run_trials({arguments + 1, arguments + count}, std::cout);
}
