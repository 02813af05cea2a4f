#include "rendezvous/identity/key_source.h"

#include <openssl/crypto.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "proto/core/number.h"
#include "rendezvous/identity/key_file.h"

namespace dtrun::rendezvous {
namespace {

Status both(const std::string& plain, const std::string& key) {
  return Status(kExitUsage, plain + " asks for plain text and " + key + " for a key: give one of them");
}

// A descriptor that a parent left open for this process alone.
Result<JobKey> key_on(const std::string& number) {
  const std::string what = std::string(kKeyFdVariable) + "=" + number;
  const auto fd = parse_number<int>(number);
  if (!fd || *fd <= STDERR_FILENO)
    return Status(kExitUsage, what + ": expected the number of an open descriptor, 3 or more");
  return read_key(*fd, what);
}

Result<FoundKey> found(Result<JobKey> key) {
  if (!key.ok()) return key.status();
  return FoundKey{.key = std::move(key).value()};
}

Result<FoundKey> users_key(const std::filesystem::path& file, bool make) {
  std::error_code ignored;
  if (!make && !std::filesystem::exists(file, ignored)) return FoundKey{.why_none = "no " + file.string()};
  Result<JobKey> key = read_or_make_key(file);
  if (key.ok() || key.status().exit_code() != kExitCannotCreate) return found(std::move(key));
  return FoundKey{.why_none = key.status().message()};
}

}  // namespace

void forget_key_variables() {
  for (const char* const variable : {kKeyVariable, kKeyFdVariable}) {
    if (char* const value = std::getenv(variable)) OPENSSL_cleanse(value, std::strlen(value));
    unsetenv(variable);
  }
}

Reach reach_of(const std::string& host) {
  if (host.empty() || host.starts_with("unix:")) return Reach::kUser;
  const bool dotted = host.find_first_not_of("0123456789.") == std::string::npos;
  const bool loopback = (dotted && host.starts_with("127.")) || host == "::1" || host == "localhost";
  return loopback ? Reach::kMachine : Reach::kNetwork;
}

Result<KeyChoice> choose_key(const KeyOffer& offer, Reach reach) {
  // An option with an empty value, as from an unset shell variable: a process that asks for a key must not
  // run without one.
  if (offer.file && offer.file->value.empty() && offer.file->source.starts_with("--"))
    return Status(kExitUsage, offer.file->source + "=: expected the file of the job's key");
  const bool file = offer.file && !offer.file->value.empty();
  if (offer.insecure) {
    if (file) return both(offer.insecure->source, offer.file->source);
    if (!offer.text.empty()) return both(offer.insecure->source, kKeyVariable);
    if (!offer.descriptor.empty()) return both(offer.insecure->source, kKeyFdVariable);
    return KeyChoice::kPlain;
  }
  if (reach == Reach::kUser) return KeyChoice::kPlain;
  if (file) return KeyChoice::kFile;
  if (!offer.text.empty()) return KeyChoice::kText;
  return offer.descriptor.empty() ? KeyChoice::kUsers : KeyChoice::kDescriptor;
}

Result<std::filesystem::path> users_key_file(const std::function<const char*(const char*)>& environment) {
  // The standard says that a relative path counts for nothing.
  for (const auto& [variable, below] : {std::pair("XDG_CONFIG_HOME", ""), std::pair("HOME", ".config")}) {
    const char* folder = environment(variable);
    if (folder != nullptr && *folder == '/') return std::filesystem::path(folder) / below / "dtrun" / "key";
  }
  return Status(kExitNoPermission, "HOME is not set");
}

Result<FoundKey> find_key(const KeyOffer& offer, Reach reach, const Result<std::filesystem::path>& users_file,
                          bool make) {
  ASSIGN_OR_RETURN(const KeyChoice choice, choose_key(offer, reach));
  switch (choice) {
    case KeyChoice::kFile:
      return found(read_key_file(offer.file->value, offer.file->source + "=" + offer.file->value));
    case KeyChoice::kText:
      return found(JobKey::parse(offer.text, kKeyVariable));
    case KeyChoice::kDescriptor:
      return found(key_on(offer.descriptor));
    case KeyChoice::kUsers:
      if (!users_file.ok()) return FoundKey{.why_none = users_file.status().message()};
      return users_key(users_file.value(), make);
    case KeyChoice::kPlain:
      break;
  }
  return FoundKey{.why_none = offer.insecure ? offer.insecure->source : ""};
}

}  // namespace dtrun::rendezvous
