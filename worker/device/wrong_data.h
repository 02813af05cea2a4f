// A device's errors for samples that do not fit the model.
#pragma once

#include <cstdint>
#include <string>

#include "proto/core/exit_codes.h"
#include "worker/base/error.h"

namespace dtrun::worker {

inline WorkerError wrong_token(std::int32_t token, int classes) {
  return {kExitNoInput, "the data has token " + std::to_string(token) + ", but the model has " +
                            std::to_string(classes) + " tokens, numbered from 0; check /data/path"};
}

inline WorkerError wrong_target(std::int32_t target, int classes) {
  return {kExitNoInput, "the data has a sample with label " + std::to_string(target) +
                            ", but the model has " + std::to_string(classes) +
                            " classes, numbered from 0; check /data/path"};
}

}  // namespace dtrun::worker
