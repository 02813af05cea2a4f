// The directory that a preparation makes: it appears under its name when it is complete.
#pragma once

#include <filesystem>
#include <memory>

#include "worker/checkpoint/durable.h"

namespace dtrun::worker {

class TargetDirectory {
 public:
  // Makes a scratch directory beside `path`, where a dead preparation of the same name is removed. Throws
  // WorkerError, EX_CANTCREAT: `path` holds something, or cannot be made, or another preparation makes it.
  explicit TargetDirectory(const std::filesystem::path& path);

  const std::filesystem::path& scratch() const { return scratch_->path(); }
  // Gives what the scratch directory holds its name. Throws WorkerError.
  void publish();

 private:
  std::filesystem::path path_;
  std::unique_ptr<ScratchDirectory> scratch_;
};

}  // namespace dtrun::worker
