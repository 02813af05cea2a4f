// How people know an operation in a profile.
#pragma once

#include <string>

namespace dtrun::worker {

// Operations that do the same at different times, or for different nodes of a program.
struct OpKind {
  std::string what;  // "Linear 768 -> 3072 + GELU", "AdamW"
  std::string part;  // "forward", "weight gradient"; empty for an operation of no node
  bool operator==(const OpKind&) const = default;
};

}  // namespace dtrun::worker
