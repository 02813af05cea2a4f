// Sorts a microbatch's tokens on the host for embedding_backward(). Plain C++.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace dtrun::worker::cuda {

// Rows of one token that a block of threads sums at most: a run of more is cut into pieces of so many and the
// rest, or the commonest token would keep one block busy long after all others.
inline constexpr std::size_t kRowsAPiece = 512;

// A run that is cut has at most twice as many pieces as whole ones.
constexpr std::size_t most_cut_pieces(std::size_t rows) { return 2 * (rows / kRowsAPiece); }

// A counting sort, stable: of equal tokens the earlier row comes first. Keeps its tables between calls, so
// that a microbatch costs its rows and the tables' zeros. One thread at a time.
class TokenSorter {
 public:
  explicit TokenSorter(std::size_t classes) : rows_(classes), next_(classes) {}

  struct Pieces {
    std::int32_t all, cut;  // cut: of runs that have several; they come first
  };
  // Fills order [tokens.size()], begins [as many + 1] and ids [as many], as TokenPieces in embedding.h says;
  // `begins` has one more than there are pieces. REQUIRES: 0 <= token < classes.
  Pieces sort(std::span<const std::int32_t> tokens, std::int32_t* order, std::int32_t* begins,
              std::int32_t* ids);

 private:
  std::vector<std::int32_t> rows_, next_;  // of each token: how many, and where its next one goes
};

}  // namespace dtrun::worker::cuda
