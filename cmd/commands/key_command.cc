#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "cmd/commands/answer.h"
#include "cmd/commands/commands.h"
#include "cmd/options/option_entry.h"
#include "proto/core/exit_codes.h"
#include "rendezvous/identity/job_key.h"

namespace dtrun::cmd {
namespace {

constexpr OptionEntry kOptionsOfKey[] = {kColorOption, kHelpOption};

// Whole or not at all, and never for others to read.
Status write_new(const std::string& file, const std::string& line) {
  const int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) {
    const Status failure = errno_status(kExitCannotCreate, file, errno);
    return errno == EEXIST ? Status(failure.exit_code(), failure.message() + "; a key is never overwritten")
                           : failure;
  }
  const bool written = write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  const int error = errno;
  if (close(fd) == 0 && written) return {};
  unlink(file.c_str());
  return errno_status(kExitCannotCreate, file, written ? errno : error);
}

int run_key(const Invocation& invocation) {
  const rendezvous::JobKey key = rendezvous::JobKey::random();
  const std::string line = key.text() + "\n";
  if (invocation.argument.empty()) return answer(line);
  if (const Status status = write_new(invocation.argument, line); !status.ok()) return fail(status);
  notice("key " + key.fingerprint() + " is in " + invocation.argument +
         "; copy the file to each node and start dtrun there with --key_file");
  return kExitOk;
}

}  // namespace

constinit const Command kKeyCommand{
    .name = "key",
    .summary = "Make the key of a job, which nodes need to join it",
    .description =
        "Writes it to FILE, which must not exist and which no other user may read; without FILE it is "
        "printed. "
        "The same key goes to every node, by --key_file FILE or in the variable DTRUN_KEY, also to "
        "`dtrun "
        "store` and `dtrun status`. What a key keeps out, and what it does not, is told in docs/security.md.",
    .argument = "[FILE]",
    .options = kOptionsOfKey,
    .rare = true,
    .run = run_key};

}  // namespace dtrun::cmd
