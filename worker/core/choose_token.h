// Draws the next token from a model's logits. A function of its arguments alone.
#pragma once

#include <span>

namespace dtrun::worker {

// Names and meaning as in transformers' generate(): the temperature first, then the cuts.
struct Sampling {
  double temperature = 1;  // 0: always the likeliest token
  int top_k = 0;           // draw among so many likeliest ones; 0: among all
  double top_p = 1;        // and among the fewest likeliest ones whose probabilities add up to this
};

// `uniform`: a random number in [0, 1). Among equal logits the lower token counts as likelier.
// REQUIRES: logits is not empty.
int choose_token(std::span<const float> logits, const Sampling& sampling, double uniform);

}  // namespace dtrun::worker
