// A teacher's parameters, which each worker reads for itself.
#pragma once

#include <memory>

#include "worker/config/config.h"
#include "worker/model/program.h"

namespace dtrun::worker {

// What train.distill_from names, for `student`; null if it names nothing. Throws WorkerError: EX_NOINPUT if
// there is no teacher or it is damaged, EX_CONFIG if it takes other samples or has other classes.
std::shared_ptr<const Teacher> load_teacher(const TrainConfig& train, const Program& student);

}  // namespace dtrun::worker
