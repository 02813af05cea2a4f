// A model that an earlier job trained, as its directory describes it: for `dtrun sample` and for teachers.
#pragma once

#include <filesystem>

#include "proto/core/status.h"
#include "worker/config/config.h"
#include "worker/model/program.h"

namespace dtrun::worker {

struct TrainedModel {
  std::filesystem::path file;       // its model.safetensors
  std::filesystem::path directory;  // of its run
  JobConfig config;                 // the run's
};

// `run`: an output_dir, or a checkpoint in one. Throws WorkerError: EX_NOINPUT if there is no model or no
// config, EX_CONFIG if the config is of another program.
TrainedModel trained_model(const std::filesystem::path& run);

// The teacher that train.distill_from names, for such samples: the model of a job, or a GPT-2 of Hugging
// Face's, without reading its parameters. REQUIRES: there is one. Throws WorkerError, EX_NOINPUT or
// EX_CONFIG, if there is no model or it cannot take the samples.
struct FoundTeacher {
  std::filesystem::path file;
  Program program;
};
FoundTeacher find_teacher(const TrainConfig& train, const SampleSpec& sample);

// The same as a Status; OK without a teacher.
Status check_teacher(const TrainConfig& train, const SampleSpec& sample);

// Whether train.init_from is there, and its config.json, if it has one, describes the function that the job's
// model computes: tensors of the same shapes may be those of another (n_head, activation_function). OK
// without an init_from. EX_NOINPUT, EX_CONFIG.
Status check_init(const JobConfig& config);

}  // namespace dtrun::worker
