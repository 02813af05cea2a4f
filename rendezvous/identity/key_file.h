// Keys in files: reading any, and the one that a user has for all jobs, made when it is first needed.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "proto/core/status.h"
#include "rendezvous/identity/job_key.h"

namespace dtrun::rendezvous {

// One line from `fd`, which is closed. `what`: names it in messages. Fails with EX_NOINPUT if it cannot be
// read, or EX_NOPERM if it is no key, or a file that everybody may read or write, or of another user's.
Result<JobKey> read_key(int fd, const std::string& what);
// `patience`: with a FIFO that nobody writes to.
Result<JobKey> read_key_file(const std::filesystem::path& file, const std::string& what,
                             std::chrono::milliseconds patience = std::chrono::seconds(30));

// The key in `file`, made if it is not there yet: it and its folder for this user alone. If several processes
// do so at once, on any number of machines that share the folder, all get the same key. Fails as
// read_key_file, or with EX_CANTCREAT if it cannot be made.
Result<JobKey> read_or_make_key(const std::filesystem::path& file);

}  // namespace dtrun::rendezvous
