// Set-up that every use of gRPC in this process needs: gRPC must not write to standard error or spend time on
// debugging aids. And how endpoints are written.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace dtrun::rendezvous {

// The logs of gRPC and of protobuf go nowhere unless DTRUN_LOG_LEVEL is debug or trace, and its callback
// threads live as long as the process. Call before any other use of gRPC; calls after the first do nothing.
void set_up_grpc();

// "10.0.0.1:29400", "[fd00::1]:29400"; "unix:/tmp/a" unchanged. `host` may be a list_text():
// "node0,node1:29400".
std::string endpoint_text(const std::string& host, int port);

// Several hosts as one text in the place of a host: "node0,node1", "[fd00::1],[fd00::2]". A single host stays
// as it is.
std::string list_text(const std::vector<std::string>& hosts);
// The hosts in a list_text(); one host if it is not a list.
std::vector<std::string> hosts_of(const std::string& list);

// "unix:PATH", a Unix socket in the place of a host: its port means nothing.
std::string unix_endpoint(const std::string& path);
// The path in a unix_endpoint(); nothing if it is a host.
std::optional<std::string> unix_path(const std::string& host);

}  // namespace dtrun::rendezvous
