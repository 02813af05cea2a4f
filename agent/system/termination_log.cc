#include "agent/system/termination_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "proto/base/descriptor.h"

namespace dtrun::agent {
namespace {

constexpr std::string_view kMore = "\n…\n";

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

}  // namespace

std::string termination_message(std::string_view text) {
  if (text.size() <= kTerminationMessageBytes) return std::string(text);
  std::size_t end = kTerminationMessageBytes - kMore.size();
  if (const std::size_t line = text.rfind('\n', end); line != std::string_view::npos && line > 0) {
    end = line;
  } else {
    while (end > 0 && continues_character(text[end])) --end;
  }
  return std::string(text.substr(0, end)) + std::string(kMore);
}

void write_termination_message(std::string_view text) {
  const char* named = std::getenv("DTRUN_TERMINATION_LOG");
  const Descriptor file(
      open(named != nullptr ? named : "/dev/termination-log", O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  struct stat status {};
  if (!file.open() || fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return;
  const std::string message = termination_message(text);
  if (ftruncate(file.get(), 0) != 0) return;
  [[maybe_unused]] const ssize_t written = write(file.get(), message.data(), message.size());
}

}  // namespace dtrun::agent
