#include "rendezvous/http/open_page.h"

#include <array>
#include <utility>

#include "proto/core/text.h"
#include "rendezvous/http/process_facts.h"
#include "rendezvous/text/job_metrics.h"

namespace dtrun::rendezvous {
namespace {

std::function<std::string(std::span<const v1::RunStatus>, double)> metrics_of_this_process() {
  return [metrics = std::make_shared<JobMetrics>()](std::span<const v1::RunStatus> runs, double wall_now) {
    return metrics->text(runs, read_process_facts(), wall_now, DTRUN_VERSION);
  };
}

}  // namespace

Result<std::unique_ptr<HttpServer>> open_page(Server& server, const PageOptions& options) {
  const bool beyond = !options.address.empty() && !is_loopback_text(options.address);
  const JobKey key = options.key ? *options.key : JobKey::random();
  const auto token = [key](const std::string& run_id) { return key.page_token(run_id); };
  HttpOptions http{.port = options.port,
                   .site = {.look = [&server](const std::string& run_id,
                                              const HistoryMark& mark) { return server.look(run_id, mark); },
                            .token = token,
                            .metrics = metrics_of_this_process(),
                            .version = DTRUN_VERSION,
                            .endpoint = options.endpoint}};
  if (!options.address.empty()) http.address = options.address;
  if (beyond) http.identity = make_identity(key);
  auto page = HttpServer::listen(std::move(http));
  if (page.ok()) server.set_page({.address = page.value()->url(), .host = options.host, .token = token});
  return page;
}

std::string page_text(const std::string& address, const std::string& host, bool in_pod) {
  const std::size_t colon = address.rfind(':');
  const std::string port = colon == address.npos ? "" : address.substr(colon + 1);
  const bool is_plain = address.starts_with("http://");
  if (in_pod)
    return "kubectl port-forward " + host + " " + port + ", then " +
           (is_plain ? "http://127.0.0.1:" + port
                     : "the link of kubectl exec " + host + " -- dtrun status --open");
  if (!is_plain) return address;
  return address + "; elsewhere: ssh -L " + port + ":127.0.0.1:" + port + " " + host;
}

bool is_loopback_text(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

}  // namespace dtrun::rendezvous
