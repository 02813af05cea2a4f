// Opens the page of a coordinator's runs.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "rendezvous/http/server.h"
#include "rendezvous/identity/job_key.h"
#include "rendezvous/server/server.h"

namespace dtrun::rendezvous {

struct PageOptions {
  int port = 0;                    // 0: any free one
  std::string address = {};        // numeric, to listen on; empty: loopback
  std::optional<JobKey> key = {};  // the job's; without it certificate and tokens last as long as the page
  std::string endpoint = {};       // of the coordinator, as `dtrun status` says it
  std::string host = {};           // this one, as people know it
};

// The page shows what `server` tells, which must outlive it, and the server's status says where the page is.
Result<std::unique_ptr<HttpServer>> open_page(Server& server, const PageOptions& options);

// "http://127.0.0.1:40123; elsewhere: ssh -L 40123:127.0.0.1:40123 node1". `in_pod`: of Kubernetes, whose
// name is the host's, and to which no ssh leads.
std::string page_text(const std::string& address, const std::string& host, bool in_pod);

// True for an address that this host's processes alone can connect to.
bool is_loopback_text(const std::string& address);

}  // namespace dtrun::rendezvous
