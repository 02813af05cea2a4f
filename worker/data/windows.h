// A row of tokens cut into samples: sample i is the tokens from i * length on, and its targets are the same
// row one token further. A sample therefore takes length + 1 tokens, the last of which begins the next
// sample.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "worker/data/dataset.h"
#include "worker/data/message.h"

namespace dtrun::worker {

inline std::uint64_t windows_in(std::uint64_t tokens, int length) {
  return tokens == 0 ? 0 : (tokens - 1) / static_cast<std::uint64_t>(length);
}

inline SampleSpec window_spec(int length, int classes) {
  return {.input = SampleSpec::Input::kTokens,
          .shape = {.channels = 1, .height = 1, .width = length},
          .targets = length,
          .classes = classes};
}

// The size of the test split where it is a part at the end of `total`: never all, and at least one of two.
inline std::uint64_t test_share(std::uint64_t total, double fraction) {
  if (total == 0) return 0;
  const auto share = static_cast<std::uint64_t>(static_cast<double>(total) * fraction);
  return std::min(std::max<std::uint64_t>(share, 1), total - 1);
}

// Samples are numbered with 32 bits.
inline constexpr std::uint64_t kMostSamples = UINT32_MAX;

// EX_NOINPUT if `have` units ("byte", "token") of a split make no sample, or too many. `where`: " in any
// file" where each file is cut alone.
inline Status check_samples(const DataConfig& config, Split split, std::uint64_t have,
                            const std::string& unit, std::uint64_t samples, const std::string& where = "") {
  if (samples > 0 && samples <= kMostSamples) return {};
  const std::string fault = "has " + with_thousands(have) + " " + unit + "s to " +
                            (split == Split::kTrain ? "train on" : "test with") + ", ";
  if (samples > 0)
    return bad_input(config.path, fault + "more than " + with_thousands(kMostSamples) +
                                      " samples; make data.sequence_length larger");
  return bad_input(config.path, fault + "fewer" + where + " than a sample of data.sequence_length " +
                                    with_thousands(config.sequence_length) + " and the " + unit +
                                    " after it; make it smaller or get more data");
}

}  // namespace dtrun::worker
