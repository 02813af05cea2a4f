// The IDX format of the MNIST family: big-endian; two zero bytes, the element type, the number of dimensions,
// each dimension as 32 bits, then the elements in row-major order. A file may be gzip, which its first bytes
// tell. Functions of bytes: reading the file is the caller's.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/core/status.h"
#include "worker/data/node_memory.h"

namespace dtrun::worker {

// An array of unsigned bytes, the one element type that image and label files use.
struct IdxArray {
  std::vector<std::uint32_t> dims;
  Bytes values;  // in the memory of the content
};

// How many dimensions an array must have.
struct IdxRank {
  int least, most;
  IdxRank(int rank) : least(rank), most(rank) {}  // NOLINT: implicit on purpose
  IdxRank(int least, int most) : least(least), most(most) {}
};

// The whole array; its file's content goes into the room. Failures have EX_NOINPUT and explain the bytes that
// were found. No room is asked for sizes that so short a file cannot hold.
Result<IdxArray> parse_idx(Bytes file, IdxRank rank, const Room& room);

// The array of such content.
IdxArray idx_array(Bytes content);

// The dimensions alone, from the file's first bytes (kIdxProbe are always enough).
Result<std::vector<std::uint32_t>> parse_idx_dims(Bytes beginning, IdxRank rank);
inline constexpr std::size_t kIdxProbe = 4096;

}  // namespace dtrun::worker
