// The fingerprint by which two trained models are compared: sha256 over the parameters.
#include <algorithm>
#include <bit>

#include "worker/base/sha256.h"
#include "worker/model/program.h"

namespace dtrun::worker {

static_assert(std::endian::native == std::endian::little, "parameters are hashed as they lie in memory");

std::string parameters_sha256(const Program& program, std::span<const float> flat) {
  std::vector<const Parameter*> by_name;
  for (const Parameter& parameter : program.parameters) by_name.push_back(&parameter);
  std::sort(by_name.begin(), by_name.end(),
            [](const Parameter* left, const Parameter* right) { return left->name < right->name; });
  Sha256 hash;
  for (const Parameter* parameter : by_name)
    hash.update(
        {reinterpret_cast<const char*>(flat.data() + parameter->offset), parameter->size * sizeof(float)});
  return hash.hex();
}

}  // namespace dtrun::worker
