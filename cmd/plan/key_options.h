// Chooses the key that a command takes for its job, the same for all of dtrun: --key_file and --insecure,
// the environment, the user's own.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "cmd/options/given.h"
#include "cmd/options/values.h"
#include "proto/core/status.h"
#include "rendezvous/identity/key_source.h"

namespace dtrun::cmd {

struct KeyQuestion {
  rendezvous::KeyOffer offer;
  const Environment& environment;
  Endpoint endpoint;  // of the coordinator
  // A command that only asks, or shows a plan, makes no key, and goes on without one.
  bool only_asks = false;
  std::function<bool()> hosts = [] { return false; };  // whether the coordinator will be on this machine
};

// The options of a command that has --key_file and --insecure.
template <typename Options>
rendezvous::KeyOffer key_offer(const Options& options, const Environment& environment) {
  const auto named = [](const std::optional<Given>& given) -> std::optional<rendezvous::Named> {
    if (!given) return std::nullopt;
    return rendezvous::Named{.source = given->source, .value = given->value};
  };
  const auto text = [&](const char* variable) -> std::string {
    const char* value = environment(variable);
    return value != nullptr ? value : "";
  };
  rendezvous::KeyOffer offer{.file = named(options.given("key_file"))};
  if (options.flag("insecure")) offer.insecure = named(options.given("insecure"));
  offer.text = text(rendezvous::kKeyVariable);
  offer.descriptor = text(rendezvous::kKeyFdVariable);
  return offer;
}

// From then on a process that may have a key leaves no core file. Fails as rendezvous::find_key, and with
// EX_NOPERM and three lines if there is no key although unauthenticated peers could connect and plain text
// was not asked for.
Result<rendezvous::FoundKey> find_key(const KeyQuestion& question);

// For a command that asks coordinators, wherever they are. None is no failure: one may need none.
template <typename Options>
Result<std::optional<rendezvous::JobKey>> key_of_asker(const Options& options,
                                                       const Environment& environment) {
  ASSIGN_OR_RETURN(const auto found, find_key({.offer = key_offer(options, environment),
                                               .environment = environment,
                                               .endpoint = {.host = "*"},
                                               .only_asks = true}));
  return found.key;
}

// A notice for people if there is no key: it says which users may join.
std::string plain_text_notice(const rendezvous::FoundKey& found, const Endpoint& endpoint);

// Beyond this host the page is shown only where not everybody can ask the coordinator for its token.
Status check_page(const std::optional<Given>& address, bool coordinator_is_closed);

}  // namespace dtrun::cmd
