// Set-up that every use of gRPC in this process needs: gRPC must not write to standard error or spend time on
// debugging aids. And how endpoints are written.
#pragma once

#include <string>

namespace dtrun::rendezvous {

// gRPC's own log goes nowhere unless DTRUN_LOG_LEVEL is debug or trace, and its callback threads live as long
// as the process. Call before any other use of gRPC; calls after the first do nothing.
void set_up_grpc();

// "10.0.0.1:29400", "[fd00::1]:29400"
std::string endpoint_text(const std::string& host, int port);

}  // namespace dtrun::rendezvous
