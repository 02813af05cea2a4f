// The directory that a preparation makes: it appears under its name when it is complete.
#pragma once

#include <filesystem>
#include <memory>

#include "worker/checkpoint/durable.h"

namespace dtrun::worker {

class TargetDirectory {
 public:
  // Makes a scratch directory beside `path`, and removes that of a dead preparation of the same name. Throws
  // WorkerError, EX_CANTCREAT: `path` holds something, or cannot be made, or another preparation makes it.
  explicit TargetDirectory(const std::filesystem::path& path);

  const std::filesystem::path& scratch() const { return scratch_->path(); }
  // Renames the scratch directory to `path`. Throws WorkerError.
  void publish();

 private:
  std::filesystem::path path_;
  std::unique_ptr<ScratchDirectory> scratch_;
};

}  // namespace dtrun::worker
