// Matrix products by oneDNN on the calling thread.
#pragma once

#include <cstdint>
#include <string>

namespace dtrun::worker::onednn {

// oneDNN shares its work among the threads of OpenMP, and how depends on their number: from now on it uses
// the calling thread alone. The setting is this thread's own.
void use_one_thread();

// Row-major. c = alpha * a b + beta * c with a [m, k], b [k, n], c [m, n]; a_transposed: a is [k, m] in
// memory, likewise b. `a_stride`: floats from one row in memory to the next, likewise the others.
struct Product {
  bool a_transposed = false, b_transposed = false;
  std::int64_t m = 0, n = 0, k = 0;
  float alpha = 1;
  const float* a = nullptr;
  std::int64_t a_stride = 0;
  const float* b = nullptr;
  std::int64_t b_stride = 0;
  float beta = 0;  // with 0, c is only written
  float* c = nullptr;
  std::int64_t c_stride = 0;
};

// "oneDNN 2.6.3"
std::string version();

// Throws WorkerError (EX_SOFTWARE).
void multiply(const Product& product);

}  // namespace dtrun::worker::onednn
