// JSON read strictly, from a source that may be hostile: limited depth, repeated keys reported instead of
// silently merged, faults with line and column. Reads the config, checkpoints' state files and safetensors.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "proto/core/status.h"

namespace dtrun::worker {

struct StrictJson {
  nlohmann::ordered_json value;
  std::vector<std::string> repeated;  // JSON pointers of keys given more than once; the first value is kept
};

inline constexpr int kMaxJsonDepth = 32;

// A failure has EX_CONFIG and reads "line 3, column 7: FOUND, EXPECTED".
Result<StrictJson> parse_strict_json(std::string_view text);

// `text` made safe for a terminal and a log: control characters and bytes that are not UTF-8 as \xNN.
std::string printable(std::string_view text);

// `value` as in a file, cut after about 60 characters.
std::string shown(const nlohmann::ordered_json& value);

// "a string", "an integer", …
std::string_view type_name(const nlohmann::ordered_json& value);

}  // namespace dtrun::worker
