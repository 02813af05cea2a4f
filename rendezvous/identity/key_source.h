// Finds the key that a process uses for its job. choose_key() alone decides which of the given ones counts;
// find_key() reads it.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "proto/core/status.h"
#include "rendezvous/identity/job_key.h"

namespace dtrun::rendezvous {

// Variables that hold a key as text, and the number of a descriptor on which one can be read. A process that
// starts other programs takes both out of their environment.
inline constexpr const char* kKeyVariable = "DTRUN_KEY";
inline constexpr const char* kKeyFdVariable = "DTRUN_KEY_FD";
// Removes both from this process' environment, and from its initial environment in /proc. Call it before
// there are threads.
void forget_key_variables();

// The users that can connect to the coordinator.
enum class Reach {
  kUser,     // of this machine, this user alone: a Unix socket
  kMachine,  // every user of it: loopback
  kNetwork,
};
// The reach of a coordinator on `host` as the user names it; "" is a job of one node without a host.
Reach reach_of(const std::string& host);

// An option or variable and its value: {"--key_file", "job.key"}.
struct Named {
  std::string source, value;
};

// The options and variables to choose from.
struct KeyOffer {
  std::optional<Named> file = {};      // --key_file or its variable
  std::optional<Named> insecure = {};  // the option that asks for plain text
  std::string text = {};               // kKeyVariable's; empty: none
  std::string descriptor = {};         // kKeyFdVariable's; empty: none
};

enum class KeyChoice {
  kPlain,  // no key: any process that can connect may join
  kFile,
  kText,
  kDescriptor,
  kUsers,  // the key of this user, one for all jobs
};

// The first that is given, in the order above. Fails with EX_USAGE if both a key and plain text are asked
// for, or a file without a name. Pure.
Result<KeyChoice> choose_key(const KeyOffer& offer, Reach reach);

struct FoundKey {
  std::optional<JobKey> key = {};
  std::string why_none = {};  // "--insecure", or why this user has no key; empty where none is needed
};

// The path of the user's key: $XDG_CONFIG_HOME/dtrun/key or ~/.config/dtrun/key. Fails if there is no home.
Result<std::filesystem::path> users_key_file(const std::function<const char*(const char*)>& environment);

// `make`: whether to make the user's key if there is none yet. Any number of processes may do so at once, on
// any number of machines with one home: all get the same. A key that cannot be read, or is invalid, is a
// failure with EX_NOPERM, EX_NOINPUT or EX_USAGE; a user without a key is no failure.
Result<FoundKey> find_key(const KeyOffer& offer, Reach reach, const Result<std::filesystem::path>& users_file,
                          bool make);

}  // namespace dtrun::rendezvous
