#include "worker/device/cuda/plan_file.h"

#include <fstream>
#include <sstream>
#include <system_error>

#include "proto/base/ids.h"

namespace dtrun::worker::cuda {

std::string read_plans(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();  // empty for a folder
  return text.str();
}

void keep_plans(const std::filesystem::path& file, const std::string& text) {
  if (file.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(file.parent_path(), error);
  const std::filesystem::path fresh = file.string() + "." + random_id();
  std::ofstream out(fresh, std::ios::binary);
  out << text;
  out.close();
  if (out) std::filesystem::rename(fresh, file, error);
  if (!out || error) std::filesystem::remove(fresh, error);
}

}  // namespace dtrun::worker::cuda
