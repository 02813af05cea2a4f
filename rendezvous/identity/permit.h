// What a peer may do, by the common name in its certificate: who has the job's key everything, who has a
// ticket what belongs to its run. Pure.
#pragma once

#include <optional>
#include <string>

namespace dtrun::rendezvous {

// In the certificate of a ticket for the run. No other certificate's name begins like it.
std::string ticket_name(const std::string& run_id);

// The run of that name; nothing if it is not a ticket's.
std::optional<std::string> run_of(const std::string& name);

// The common name in a peer's certificate; nothing where the server has no key, and anybody may do anything.
using PeerName = std::optional<std::string>;

// Why the peer may not do what belongs to `run_id` ("": to all runs), in words that name its own; nothing if
// it may.
std::optional<std::string> refusal_of(const PeerName& peer, const std::string& run_id);

// The same for a key of the store, or for all that begin with it.
std::optional<std::string> refusal_of_key(const PeerName& peer, const std::string& key);

// The run of a ticket that the peer has shown: such a one opens its run for a time, has its share of what
// there is, and no say on who leads the coordinator's hosts. Nothing of others.
std::optional<std::string> guest_of(const PeerName& peer);

}  // namespace dtrun::rendezvous
