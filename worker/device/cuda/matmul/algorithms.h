// The table of cuBLASLt's algorithms for matmuls (algorithms.txt). The table is part of the repository, since
// two jobs that measured for themselves might choose differently, and their last bits would differ. Pure:
// knows neither CUDA nor the library.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "worker/device/cuda/matmul/matmul_shape.h"

namespace dtrun::worker::cuda {

// A cublasLtMatmulAlgo_t: opaque, and valid for the version of the library that made it.
using AlgorithmWords = std::array<std::uint64_t, 8>;

// The rows of one platform. The library chooses for a shape without a row.
using Algorithms = std::map<MatmulShape, AlgorithmWords>;

// The platform that algorithms belong to, "NVIDIA H200, compute capability 9.0, 132 SMs, cuBLASLt 13.1.0":
// the beginning of a device's fingerprint, and of a section of the table.
std::string platform_name(const std::string& gpu, int major, int minor, int processors,
                          const std::string& cublas_lt);

using AlgorithmTable = std::map<std::string, Algorithms>;  // by platform

// Reads the format that algorithms.txt explains. Every line must be as section_of() and row_of() write it, in
// ascending order within its section. Throws WorkerError with EX_SOFTWARE that names `source` and line for
// any other.
AlgorithmTable parse_algorithms(std::string_view text, const std::string& source);

// Lines of the table, without their ends.
std::string section_of(const std::string& platform);
std::string row_of(const MatmulShape& shape, const AlgorithmWords& algorithm);

// Eight hexadecimal digits; "" for no algorithms.
std::string hash_of(const Algorithms& algorithms);

inline constexpr const char* kAlgorithmsFile = "worker/device/cuda/matmul/algorithms.txt";

// The table's text. A program may link another definition than that of algorithms_committed.cc.
std::string_view committed_algorithms();

}  // namespace dtrun::worker::cuda
