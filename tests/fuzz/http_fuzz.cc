// Any bytes as a request to the page: lines of target, host, authorization, last event id and the kernel's
// table. Nothing of a run is shown to who is not trusted and does not have its token.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "rendezvous/http/access.h"
#include "rendezvous/http/routes.h"
#include "rendezvous/text/job_metrics.h"

using namespace dtrun::rendezvous;

namespace {

constexpr const char* kToken = "8d969eef6ecad3c29a3a629280e686cf";

std::string next_line(std::string* text) {
  const std::string line = text->substr(0, text->find('\n'));
  text->erase(0, line.size() + 1);
  return line;
}

std::vector<RunView> look(const std::string& run_id, const HistoryMark& mark) {
  RunView view{.status = {}, .until = {.history = "h", .serial = 3}, .history = {}};
  view.status.set_run_id("the-secret-run");
  view.history.tell("generation", "the-secret-run began", 1, 1);
  view.history = view.history.newer_than(mark.serial);
  if (!run_id.empty() && run_id != "the-secret-run") return {};
  return {view};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string text(reinterpret_cast<const char*>(data), size);
  const bool has_token = text.find(kToken) != std::string::npos || text.find('%') != std::string::npos;
  const Site site{.look = look,
                  .token = [](const std::string&) { return kToken; },
                  .metrics = [](std::span<const v1::RunStatus> runs,
                                double now) { return JobMetrics().text(runs, {}, now, ""); },
                  .endpoint = "e"};
  HttpRequest request{.method = "GET", .target = next_line(&text)};
  request.host = next_line(&text);
  request.authorization = next_line(&text);
  request.last_event_id = next_line(&text);
  for (const bool trusted : {false, true}) {
    HttpReply reply = answer(request, trusted, site, 1);
    if (reply.stream) reply.body = next_events(&*reply.stream, site, 1);
    const bool shows = reply.body.find("secret-run") != std::string::npos && reply.status == 200;
    if (shows && !trusted && !has_token) std::abort();
  }
  const SocketAddress peer{.bytes = {127, 0, 0, 1}, .port = 45678},
      own{.bytes = {127, 0, 0, 1}, .port = 29401};
  owner_of(text, peer, own);
  return 0;
}
