// Sorts a microbatch's tokens on the host for embedding_backward(). Plain C++.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace dtrun::worker::cuda {

// A counting sort, stable: of equal tokens the earlier row comes first. Keeps its table between calls, so
// that a microbatch costs its rows and the table's zeros. One thread at a time.
class TokenSorter {
 public:
  explicit TokenSorter(std::size_t classes) : ends_(classes) {}

  // Fills order [tokens.size()], begins [as many + 1] and ids [as many], as TokenRuns in embedding.h says;
  // returns the number of different tokens, of which `begins` has one more. REQUIRES: 0 <= token < classes.
  std::size_t sort(std::span<const std::int32_t> tokens, std::int32_t* order, std::int32_t* begins,
                   std::int32_t* ids);

 private:
  std::vector<std::int32_t> ends_;  // of each token: its number of rows, then where its next row goes
};

}  // namespace dtrun::worker::cuda
