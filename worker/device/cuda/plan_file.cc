#include "worker/device/cuda/plan_file.h"

#include <system_error>

#include "proto/base/text_in.h"

namespace dtrun::worker::cuda {

std::string read_plans(const std::filesystem::path& file) { return text_in(file); }

void keep_plans(const std::filesystem::path& file, const std::string& text) {
  if (file.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(file.parent_path(), error);
  (void)replace_text(file, text);
}

}  // namespace dtrun::worker::cuda
