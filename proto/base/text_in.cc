#include "proto/base/text_in.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <system_error>

#include "proto/base/ids.h"
#include "proto/core/exit_codes.h"
#include "proto/core/number.h"

namespace dtrun {
namespace {

// Appends to `text` what can be read; the error that ended that, 0 for the end of the file.
int append_file(const std::filesystem::path& path, std::string* text) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno;
  char part[1 << 14];
  ssize_t n = 0;
  while ((n = read(fd, part, sizeof part)) > 0 || (n < 0 && errno == EINTR))
    text->append(part, static_cast<std::size_t>(n > 0 ? n : 0));
  const int error = n < 0 ? errno : 0;
  close(fd);
  return error;
}

}  // namespace

Result<std::string> read_text(const std::filesystem::path& path) {
  std::string text;
  if (const int error = append_file(path, &text); error != 0)
    return errno_status(kExitNoInput, path.string() + ": cannot be read", error);
  return text;
}

std::string text_in(const std::filesystem::path& path) {
  std::string text;
  append_file(path, &text);
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
