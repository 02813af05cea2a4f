#include "cmd/launch/own_files.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <system_error>

#include "cmd/hosts/ssh_failure.h"
#include "cmd/launch/brought_builds.h"
#include "proto/base/text_in.h"
#include "proto/core/exit_codes.h"

namespace dtrun::cmd {
namespace {

constexpr std::size_t kBlock = 512;

void put(std::string* header, std::size_t at, const std::string& text) {
  std::copy(text.begin(), text.end(), header->begin() + static_cast<std::ptrdiff_t>(at));
}

std::string octal(std::size_t number, int digits) {
  char text[16];
  std::snprintf(text, sizeof text, "%0*zo", digits, number);
  return text;
}

// POSIX.1-1988 (ustar): name, mode, ids, size, time, checksum, type, magic.
std::string header_of(const std::string& name, std::size_t size) {
  std::string header(kBlock, '\0');
  put(&header, 0, name);
  put(&header, 100, octal(0755, 7));
  put(&header, 108, octal(0, 7));
  put(&header, 116, octal(0, 7));
  put(&header, 124, octal(size, 11));
  put(&header, 136, octal(0, 11));
  put(&header, 148, "        ");
  put(&header, 156, "0");
  put(&header, 257,
      std::string("ustar\0"
                  "00",
                  8));
  std::size_t sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  put(&header, 148, octal(sum, 6) + std::string("\0 ", 2));
  return header;
}

Status add(const std::filesystem::path& file, const std::string& name, std::string* archive) {
  const Result<std::string> bytes = read_text(file);
  if (!bytes.ok()) return Status(kExitSoftware, bytes.status().message());
  archive->append(header_of(name, bytes.value().size())).append(bytes.value());
  archive->resize((archive->size() + kBlock - 1) / kBlock * kBlock, '\0');
  return {};
}

// Every distribution has these, and newer ones serve older programs (as in cmd/install.cmake).
bool is_everywhere(const std::string& library) {
  for (const char* name : {"ld-linux", "linux-vdso", "libc.so", "libm.so", "libdl.so", "libpthread.so",
                           "librt.so", "libresolv.so", "libstdc++.so", "libgcc_s.so"})
    if (library.starts_with(name)) return true;
  return false;
}

// The shared libraries that the loader finds for a program, as ldd(1) asks for them: "NAME => PATH
// (ADDRESS)".
void find_libraries(const std::filesystem::path& program, std::map<std::string, std::string>* found) {
  std::string quoted;
  for (const char c : program.string()) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  FILE* const answer = popen(("LD_TRACE_LOADED_OBJECTS=1 exec '" + quoted + "' 2>/dev/null").c_str(), "re");
  if (answer == nullptr) return;
  char line[8192];
  while (std::fgets(line, sizeof line, answer) != nullptr) {
    const std::string text(line);
    const std::size_t arrow = text.find(" => /"), end = text.rfind(" (");
    const std::size_t begin = text.find_first_not_of(" \t");
    if (arrow == std::string::npos || end == std::string::npos || end < arrow) continue;
    const std::string name = text.substr(begin, arrow - begin);
    if (!is_everywhere(name)) (*found)[name] = text.substr(arrow + 4, end - arrow - 4);
  }
  pclose(answer);
}

}  // namespace

Result<std::shared_ptr<const std::string>> archive_of(const std::filesystem::path& program) {
  auto archive = std::make_shared<std::string>();
  RETURN_IF_ERROR(add(program, "bin/dtrun", archive.get()));
  const std::filesystem::path worker = program.parent_path() / "dtrun-worker";
  std::map<std::string, std::string> libraries;
  find_libraries(program, &libraries);
  if (std::error_code error; std::filesystem::exists(worker, error)) {
    RETURN_IF_ERROR(add(worker, "bin/dtrun-worker", archive.get()));
    find_libraries(worker, &libraries);
  }
  for (const auto& [name, path] : libraries) RETURN_IF_ERROR(add(path, "lib/" + name, archive.get()));
  archive->append(header_of(kBuildLock, 0)).append(2 * kBlock, '\0');
  return std::shared_ptr<const std::string>(std::move(archive));
}

std::string bringing_script(const std::string& build, std::size_t size) {
  return "c=${XDG_CACHE_HOME:-}; case $c in /*) ;; *) c=${HOME:-.}/.cache;; esac; "
         "case $c in /*) ;; *) echo \"neither HOME nor XDG_CACHE_HOME is an absolute path: no place for "
         "dtrun\" >&2; exit 73;; esac; "
         "d=$c/dtrun/" +
         build + "; n=$d.$$; give_up() { rm -rf \"$n\"; echo \"" + kCannotBring +
         "$c/dtrun\" >&2; exit 73; }; "
         "if test -x \"$d/bin/dtrun\"; then touch \"$d\"; exec \"$d/bin/dtrun\" agent; fi; "
         "(umask 077; LC_ALL=C mkdir -p \"$n\") || give_up; printf \"dtrun wants its files\\n\"; "
         "head -c " +
         std::to_string(size) + " | LC_ALL=C tar xf - -C \"$n\" && test -f \"$n/" + kBuildLock +
         "\" || give_up; "
         "mv \"$n\" \"$d\" 2>/dev/null || rm -rf \"$n\"; rm -rf \"$d/${n##*/}\"; "
         "exec \"$d/bin/dtrun\" agent";
}

}  // namespace dtrun::cmd
