// Which key, or ticket of a store, a process takes for its job, and where it finds it. What counts is decided
// by choose_key() alone; find_key() reads it.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "proto/core/status.h"
#include "rendezvous/identity/credential.h"

namespace dtrun::rendezvous {

// Hold a key or a ticket as text, and the number of a descriptor on which one can be read. Whoever starts
// other programs takes both out of their environment.
inline constexpr const char* kTokenVariable = "DTRUN_TOKEN";
inline constexpr const char* kTokenFdVariable = "DTRUN_TOKEN_FD";
// Out of this process' environment, and of what /proc shows of the one that it was started with. Before there
// are threads.
void forget_key_variables();

// Who can connect to the coordinator.
enum class Reach {
  kUser,     // of this machine, this user alone: a Unix socket
  kMachine,  // every user of it: loopback
  kNetwork,
};
// Of a coordinator's host as it is named; empty is a job of one node without any.
Reach reach_of(const std::string& host);

// Who named something, and what: {"--token_file", "job.key"}.
struct Named {
  std::string source, value;
};

// What there is to choose from.
struct KeyOffer {
  std::optional<Named> file = {};      // --token_file or its variable
  std::optional<Named> insecure = {};  // who asks for plain text
  std::string text = {};               // kTokenVariable's; empty: none
  std::string descriptor = {};         // kTokenFdVariable's; likewise
};

enum class KeyChoice {
  kPlain,  // no key: whoever can connect may join
  kFile,
  kText,
  kDescriptor,
  kUsers,  // the key of this user, one for all jobs
};

// The first that is given, in the order above. Fails with EX_USAGE where somebody asks for a key and for
// plain text, or for a file without naming one. Pure.
Result<KeyChoice> choose_key(const KeyOffer& offer, Reach reach);

struct FoundKey {
  std::optional<Credential> key = {};
  std::string why_none = {};  // "--insecure", or why this user has no key; empty where none is needed
};

// Where the user's key is: $XDG_CONFIG_HOME/dtrun/key or ~/.config/dtrun/key. Fails if there is no home.
Result<std::filesystem::path> users_key_file(const std::function<const char*(const char*)>& environment);

// `make`: whether to make the user's key if there is none yet. Any number of processes may do so at once, on
// any number of machines with one home: all get the same. A key that cannot be read, or is none, is a failure
// with EX_NOPERM, EX_NOINPUT or EX_USAGE, as is a ticket that has ended by this host's clock; that this user
// has no key is none.
Result<FoundKey> find_key(const KeyOffer& offer, Reach reach, const Result<std::filesystem::path>& users_file,
                          bool make);

}  // namespace dtrun::rendezvous
