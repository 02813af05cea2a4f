#include "cmd/plan/config_file.h"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "proto/core/exit_codes.h"

namespace dtrun::cmd {
namespace {

// A few bytes more than a config may have, if there are so many: a file may have no end (/dev/zero).
Result<std::string> text_of(const std::string& path) {
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

}  // namespace

Result<ConfigFile> read_job_config(const std::string& path, std::span<const std::string> overrides,
                                   std::optional<std::string> text) {
  if (!text) {
    ASSIGN_OR_RETURN(text, text_of(path));
  }
  ASSIGN_OR_RETURN(worker::JobConfig config,
                   worker::parse_config(*text, path, overrides, std::getenv("HOME")));
  return ConfigFile{.text = *std::move(text), .config = std::move(config)};
}

}  // namespace dtrun::cmd
