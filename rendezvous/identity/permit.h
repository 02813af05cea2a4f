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

// Why the peer may not do what belongs to `run_id` ("": to all runs), in words that name its own; nothing if
// it may. `peer`: the name, empty where there is no key and anybody may do anything.
std::optional<std::string> refusal_of(const std::string& peer, const std::string& run_id);

// Whether its word counts on who leads the coordinator's hosts: a ticket opens a run, and has no say there.
bool is_heard_on_leaders(const std::string& peer);

// The same for a key of the store, or for all that begin with it.
std::optional<std::string> refusal_of_key(const std::string& peer, const std::string& key);

}  // namespace dtrun::rendezvous
