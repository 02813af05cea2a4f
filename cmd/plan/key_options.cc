#include "cmd/plan/key_options.h"

#include <unistd.h>

#include "agent/system/core_files.h"

namespace dtrun::cmd {
namespace {

// Only the coordinator's host shows a fresh key: from two nodes that each show one a user could take both.
// And only on a terminal: others read a scheduler's log.
Status no_key(const KeyQuestion& question, const std::string& why) {
  const bool shows = question.hosts() && isatty(STDERR_FILENO) == 1;
  const std::string key = shows ? rendezvous::JobKey::random().text() + " (a fresh key)"
                                : "KEY (the same on each, one that `dtrun key` prints)";
  return Status(kExitNoPermission, "no job key (" + why + "), and anybody who can connect to " +
                                       endpoint_text(question.endpoint) +
                                       " could join; on every node: export DTRUN_KEY=" + key +
                                       "\nor --key_file FILE (`dtrun key FILE` makes it), or a key in "
                                       "~/.config/dtrun/key, where dtrun looks "
                                       "for it\nor --insecure on every node: plain text, where all who can "
                                       "connect may run programs anyway");
}

}  // namespace

Result<rendezvous::FoundKey> find_key(const KeyQuestion& question) {
  const rendezvous::Reach reach = rendezvous::reach_of(question.endpoint.host);
  const bool keyless = question.offer.insecure || reach == rendezvous::Reach::kUser;
  if (!keyless || !question.offer.text.empty()) agent::leave_no_core_file();
  auto found = rendezvous::find_key(question.offer, reach, rendezvous::users_key_file(question.environment),
                                    !question.only_asks);
  const bool may_be_plain =
      question.only_asks || question.offer.insecure || reach != rendezvous::Reach::kNetwork;
  if (!found.ok() || found.value().key || may_be_plain) return found;
  return no_key(question, found.value().why_none);
}

std::string plain_text_notice(const rendezvous::FoundKey& found, const Endpoint& endpoint) {
  const bool here = rendezvous::reach_of(endpoint.host) == rendezvous::Reach::kMachine;
  return "plain text: " + std::string(here ? "any user of this machine" : "anybody") +
         " who can connect to " + endpoint_text(endpoint) + " may join (" + found.why_none + ")";
}

Status check_page(const std::optional<Given>& address, bool coordinator_is_closed) {
  if (!address || coordinator_is_closed || address->value.starts_with("127.") || address->value == "::1")
    return {};
  return usage(quoted(*address) +
               ": the page goes beyond this host only with a key, which encrypts it; without one leave "
               "--http_bind out, and elsewhere: ssh -L PORT:127.0.0.1:PORT HOST");
}

}  // namespace dtrun::cmd
