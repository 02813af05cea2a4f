// TensorBoard's file of one generation of a run,
// OUTPUT_DIR/runs/events.out.tfevents.SECONDS.HOST.PID.GENERATION. The format is that of TensorFlow's
// record_writer.cc and event.proto. A file that is watched must never become shorter (TensorBoard 2.21 stops
// reading for good), so a generation that goes back begins a file, with the step from which earlier points
// count no more.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "worker/metrics/patient_file.h"

namespace dtrun::worker {

struct Scalar {
  const char* tag;  // "train/loss"
  double value;
};

class EventFile {
 public:
  // `resume_step`: steps done before. Throws WorkerError as MetricsWriter does; later, entries wait as its
  // lines do.
  EventFile(const std::filesystem::path& output_dir, std::int64_t resume_step, std::int64_t generation,
            PatientFile::Notice notice);

  // `time`: seconds since 1970.
  void add(std::int64_t step, double time, const std::vector<Scalar>& scalars);

 private:
  EventFile(const std::filesystem::path& path, PatientFile::Notice notice);

  PatientFile file_;
};

// A TFRecord: length, its check sum, the bytes, their check sum.
std::string tf_record(const std::string& bytes);

}  // namespace dtrun::worker
