#include "cmd/launch/brought_builds.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "agent/process/spawn.h"

namespace dtrun::cmd {
namespace {

namespace fs = std::filesystem;

// own_build() of some dtrun, or this name with the number of a process that brings it: "5f0c-none.4711".
bool is_build_name(std::string_view name) {
  const auto skip = [&](const char* characters) {
    name.remove_prefix(std::min(name.find_first_not_of(characters), name.size()));
  };
  constexpr const char* kHexadecimal = "0123456789abcdef";
  skip(kHexadecimal);
  if (!name.starts_with('-')) return false;
  name.remove_prefix(1);
  if (name.starts_with("none"))
    name.remove_prefix(4);
  else
    skip(kHexadecimal);
  if (!name.starts_with('.')) return name.empty();
  name.remove_prefix(1);
  const bool has_number = !name.empty();
  skip("0123456789");
  return has_number && name.empty();
}

bool is_unused_for_long(const fs::path& folder) {
  std::error_code error;
  const auto started = fs::last_write_time(folder, error);
  return !error && fs::file_time_type::clock::now() - started > kKeepBuilds;
}

// A record lock would end with the process that detaches its job; this lock passes to the process that goes
// on.
bool try_lock(const Descriptor& file, int how) { return flock(file.get(), how | LOCK_NB) == 0; }

void remove_if_unused(const fs::path& folder) {
  const Descriptor file(open((folder / kBuildLock).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  const bool is_half_made = !file.open() && errno == ENOENT;
  if (!is_half_made && !(file.open() && try_lock(file, LOCK_EX))) return;
  if (!is_unused_for_long(folder)) return;  // it was started before its lock was had
  std::error_code ignored;
  fs::remove_all(folder, ignored);
}

}  // namespace

fs::path brought_build(const fs::path& program, const std::string& build) {
  const fs::path folder = program.parent_path().parent_path();
  const bool is_brought = folder.filename() == build && folder.parent_path().filename() == "dtrun";
  return is_brought ? folder : fs::path();
}

Descriptor keep_build(const fs::path& folder) {
  Descriptor file(open((folder / kBuildLock).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (!file.open() || !try_lock(file, LOCK_SH)) return {};
  return Descriptor(fcntl(file.get(), F_DUPFD_CLOEXEC, agent::kFirstSpareFd));
}

void remove_old_builds(const fs::path& folder) {
  std::vector<fs::path> old;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder.parent_path(), error)) {
    const bool may_go =
        entry.path() != folder && entry.symlink_status(error).type() == fs::file_type::directory;
    if (may_go && is_build_name(entry.path().filename().native()) && is_unused_for_long(entry.path()))
      old.push_back(entry.path());
  }
  for (const fs::path& one : old) remove_if_unused(one);
}

}  // namespace dtrun::cmd
