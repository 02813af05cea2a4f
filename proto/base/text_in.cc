#include "proto/base/text_in.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <system_error>

#include "proto/base/ids.h"
#include "proto/core/exit_codes.h"
#include "proto/core/number.h"

namespace dtrun {
namespace {

Status cannot_read(const std::filesystem::path& path, int error) {
  return errno_status(kExitNoInput, path.string() + ": cannot be read", error);
}

// Appends to `text` what can be read.
Status append_file(const std::filesystem::path& path, std::size_t most, std::string* text) {
  ASSIGN_OR_RETURN(const Descriptor file, open_regular(path));
  char part[1 << 14];
  ssize_t n = 0;
  while (text->size() < most &&
         ((n = read(file.get(), part, std::min(sizeof part, most - text->size()))) > 0 ||
          (n < 0 && errno == EINTR)))
    text->append(part, static_cast<std::size_t>(n > 0 ? n : 0));
  return n < 0 ? cannot_read(path, errno) : Status();
}

}  // namespace

Result<Descriptor> open_regular(const std::filesystem::path& path, int more_flags) {
  Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | more_flags));
  struct stat facts {};
  if (!file.open() || fstat(file.get(), &facts) != 0) return cannot_read(path, errno);
  if (S_ISDIR(facts.st_mode)) return cannot_read(path, EISDIR);
  if (!S_ISREG(facts.st_mode)) return Status(kExitNoInput, path.string() + ": is no regular file");
  return file;
}

Result<std::string> read_text(const std::filesystem::path& path, std::size_t most) {
  std::string text;
  RETURN_IF_ERROR(append_file(path, most, &text));
  return text;
}

std::string text_in(const std::filesystem::path& path) {
  std::string text;
  (void)append_file(path, std::string::npos, &text);
  return text;
}

std::string line_in(const std::filesystem::path& path) {
  const std::string text = text_in(path);
  return text.substr(0, text.find('\n'));
}

std::optional<std::int64_t> number_in(const std::filesystem::path& path) {
  return parse_leading_number<std::int64_t>(text_in(path));
}

Status replace_text(const std::filesystem::path& path, const std::string& text) {
  const std::filesystem::path fresh = path.string() + "." + random_id();
  std::ofstream out(fresh, std::ios::binary);
  out << text;
  out.close();
  std::error_code error;
  if (out) std::filesystem::rename(fresh, path, error);
  if (out && !error) return {};
  const int number = error ? error.value() : errno;
  std::filesystem::remove(fresh, error);
  return errno_status(kExitCannotCreate, "cannot write " + path.string(), number);
}

}  // namespace dtrun
