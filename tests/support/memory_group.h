// A control group with a limit on memory, for tests of what happens at it.
#pragma once

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "proto/base/ids.h"
#include "tests/support/files.h"
#include "tests/support/process.h"

namespace dtrun::test {

class MemoryGroup {
 public:
  // Of whichever hierarchy has the memory controller.
  explicit MemoryGroup(std::uint64_t bytes) {
    const std::filesystem::path all = "/sys/fs/cgroup";
    const std::string name = "dtrun-test-" + random_id(), limit = std::to_string(bytes);
    std::error_code error;
    folder_ = all / "memory" / name;
    if (std::filesystem::create_directory(folder_, error)) {
      set("memory.limit_in_bytes", limit);
      set("memory.memsw.limit_in_bytes", limit);
      there_ = true;
      return;
    }
    std::ofstream(all / "cgroup.subtree_control") << "+memory";
    folder_ = all / name;
    std::filesystem::create_directory(folder_, error);
    set("memory.max", limit);
    set("memory.swap.max", "0");
    there_ = read_if_there(folder_ / "memory.max") == limit + "\n";
  }
  // Waits for the end of its processes.
  ~MemoryGroup() {
    std::error_code error;
    eventually([&] { return std::filesystem::remove(folder_, error) || !std::filesystem::exists(folder_); });
  }
  MemoryGroup(const MemoryGroup&) = delete;

  // False where none can be made.
  bool there() const { return there_; }
  // A command that joins it and becomes `argv`.
  std::vector<std::string> with(const std::vector<std::string>& argv) const {
    const std::string enter = "echo $$ > " + shell_text({(folder_ / "cgroup.procs").string()});
    return {"/bin/sh", "-c", enter + "; exec " + shell_text(argv)};
  }

 private:
  void set(const char* file, const std::string& value) const { std::ofstream(folder_ / file) << value; }

  std::filesystem::path folder_;
  bool there_ = false;
};

}  // namespace dtrun::test
