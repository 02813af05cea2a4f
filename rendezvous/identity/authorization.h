// Decides from the common name in a peer's certificate what it may do: a holder of the job's key anything, a
// holder of a scoped token whatever belongs to its run. Pure.
#pragma once

#include <optional>
#include <string>

namespace dtrun::rendezvous {

// The common name in the certificate of a scoped token for the run. No other certificate's name begins like
// it.
std::string token_name(const std::string& run_id);

// The run of that name; nothing if it is not a scoped token's.
std::optional<std::string> run_of(const std::string& name);

// The common name in a peer's certificate; nothing if the server has no key, so that any peer may do
// anything.
using PeerName = std::optional<std::string>;

// The reason why the peer may not touch `run_id` ("": all runs), in words that name its own run; nothing if
// it may.
std::optional<std::string> refusal_of(const PeerName& peer, const std::string& run_id);

// The same for a key of the store, or for all keys that begin with it.
std::optional<std::string> refusal_of_key(const PeerName& peer, const std::string& key);

// The run of the scoped token that the peer has shown; nothing for other peers. A scoped token opens its run
// for a time, within a guest's share of the store's resources, and gives no vote on which host leads.
std::optional<std::string> guest_of(const PeerName& peer);

}  // namespace dtrun::rendezvous
