#include "cmd/plan/config_file.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "proto/core/exit_codes.h"
#include "worker/config/config.h"

namespace dtrun::cmd {

// A file may have no end (/dev/zero).
Result<std::string> read_config_file(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return Status(kExitNoInput, path + ": is a directory, expected a config file");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return errno_status(kExitNoInput, path, errno)
        .within("cannot read the config (see configs/ for examples)");
  }
  std::string text(worker::kLargestConfig + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (file.bad()) return errno_status(kExitNoInput, path, errno).within("cannot read the config");
  return text;
}

}  // namespace dtrun::cmd
