#include "rendezvous/identity/authorization.h"

#include <string_view>

#include "rendezvous/identity/identity.h"

namespace dtrun::rendezvous {
namespace {

constexpr std::string_view kScopedToken = "run ";

}  // namespace

std::string token_name(const std::string& run_id) { return std::string(kScopedToken) + run_id; }

std::optional<std::string> run_of(const std::string& name) {
  if (!name.starts_with(kScopedToken) || name.size() == kScopedToken.size()) return std::nullopt;
  return name.substr(kScopedToken.size());
}

std::optional<std::string> refusal_of(const PeerName& peer, const std::string& run_id) {
  if (!peer || *peer == kCertifiedName) return std::nullopt;
  const std::optional<std::string> own = run_of(*peer);
  if (!own) return "a certificate for \"" + *peer + "\" opens nothing here";
  if (*own == run_id) return std::nullopt;
  return "this is a scoped token for run " + *own + ", it opens " +
         (run_id.empty() ? "no other" : "not run " + run_id.substr(0, 128));
}

// A run's keys begin with its id and a slash (agent/driver.cc), and an id has none.
std::optional<std::string> refusal_of_key(const PeerName& peer, const std::string& key) {
  const std::size_t slash = key.find('/');
  return refusal_of(peer, slash == std::string::npos ? "" : key.substr(0, slash));
}

std::optional<std::string> guest_of(const PeerName& peer) { return peer ? run_of(*peer) : std::nullopt; }

}  // namespace dtrun::rendezvous
