// Sorts a microbatch's tokens on the host for embedding_backward(). Plain C++.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace dtrun::worker::cuda {

// The most rows of one token that a block of threads sums: a longer run is cut into pieces of this size and a
// rest, since otherwise the most frequent token would keep one block busy long after all others.
inline constexpr std::size_t kRowsAPiece = 512;

// A run that is cut has at most one piece more than whole pieces, so at most twice as many.
constexpr std::size_t most_cut_pieces(std::size_t rows) { return 2 * (rows / kRowsAPiece); }

// A stable counting sort: among equal tokens the earlier row comes first. Keeps its tables between calls, so
// that a microbatch costs only its rows and zeroing the tables. One thread at a time.
class TokenSorter {
 public:
  explicit TokenSorter(std::size_t classes) : rows_(classes), next_(classes) {}

  struct Pieces {
    std::int32_t all, cut;  // cut: pieces of runs that have several, which come first
  };
  // Fills order [tokens.size()], begins [as many + 1] and ids [as many], as in TokenPieces (embedding.h);
  // `begins` has one entry more than there are pieces. REQUIRES: 0 <= token < classes.
  Pieces sort(std::span<const std::int32_t> tokens, std::int32_t* order, std::int32_t* begins,
              std::int32_t* ids);

 private:
  std::vector<std::int32_t> rows_, next_;  // for each token: number of rows, place of its next one
};

}  // namespace dtrun::worker::cuda
