#include "cmd/commands/trainer/become_worker.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "cmd/commands/answer.h"
#include "proto/core/exit_codes.h"

namespace dtrun::cmd {

int become_worker(const std::vector<std::string>& words) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string worker = (self.parent_path() / "dtrun-worker").string();
  std::string name = "dtrun-worker";
  std::vector<std::string> copies = words;
  std::vector<char*> argv{name.data()};
  for (std::string& word : copies) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(worker.c_str(), argv.data());
  return fail(
      errno_status(kExitSoftware, worker, errno).within("the built-in trainer must lie beside dtrun"));
}

}  // namespace dtrun::cmd
