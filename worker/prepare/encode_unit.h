// A unit's tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/core/status.h"
#include "worker/prepare/inputs.h"

namespace dtrun::worker {

struct EncodingRules {
  std::string json_field = "text";
  std::int32_t end_of_text = 0;  // goes before each document
  double val_fraction = 0;
  bool cut_documents = false;
};

struct UnitTokens {
  std::vector<std::int32_t> train, val;
  std::uint64_t documents = 0;  // that begin in the unit, without empty ones
};

// Failures have EX_NOINPUT and name the file and the line.
Result<UnitTokens> encode_unit(const Unit& unit, const InputSource& source, const EncodingRules& rules,
                               Encoder& encoder);

}  // namespace dtrun::worker
