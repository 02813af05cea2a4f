// Finds the fastest of cuBLASLt's algorithms for a matmul on the GPU at hand, among those that multiply
// right and give the same bits each time: whether they are worth more than the library's first choice, which
// jobs take.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tests/bench/event_timer.h"
#include "worker/device/cuda/arithmetic.h"
#include "worker/device/cuda/matmul/matmuls.h"

namespace dtrun::worker::cuda {

// Into how many parts it cuts k; none: the library does not say.
std::optional<int> split_of(const AlgorithmWords& words);

struct Candidate {
  AlgorithmWords words{};
  std::string name;  // "tile 20, stages 36, split 1"
  std::optional<int> split;
  std::string fault;        // "" or why it must not be taken
  double microseconds = 0;  // the median, of one without a fault
};

struct Search {
  std::vector<Candidate> candidates;  // the library's first choice first; none: it has no algorithm
  // The one to take: the fastest, unless the first choice is hardly slower. None if each has a fault.
  std::optional<std::size_t> best;
  // Among candidates without a fault and with split 1: how many there are, and how many of them have the same
  // bits.
  int unsplit = 0, unsplit_alike = 0;
  std::string skipped;  // "" or why it was not searched
};

class AlgorithmSearch {
 public:
  // On this process' GPU number `gpu`.
  explicit AlgorithmSearch(int gpu, Timer timer = by_events);

  Search search(const MatmulShape& shape);
  // Whether the matmul can be multiplied here.
  bool can(const MatmulShape& shape) { return matmuls_.can(shape); }

 private:
  std::vector<Candidate> candidates(const MatmulShape& shape);
  void find_wrong(const MatmulShape& shape, Search& search);
  void find_unsteady(class Multiplication& product, Search& search);
  void measure(class Multiplication& product, Search& search);

  CudaArithmetic arithmetic_;
  CudaStream stream_;
  Matmuls matmuls_;
  const Timer timer_;
  const Buffer workspace_;
};

// The program: [--seconds S] CONFIG.json… Prints the platform, a line for each matmul with its best
// algorithm, and what else it found as comments; after S seconds no further matmul is begun. Exit code: 0, 77
// where there is no GPU, or the error's.
int search_algorithms(const std::vector<std::string>& arguments, std::ostream& out,
                      const Timer& timer = by_events);

}  // namespace dtrun::worker::cuda
