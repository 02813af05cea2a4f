// The parts of a build, for people that have to know whether a library's security hole is in it.
#pragma once

#include <string>

namespace dtrun::cmd {

// "gRPC 1.51.1, OpenSSL 3.0.19 27 Jan 2026, build 5d41402a…": both are linked statically, so that the
// distribution's updates do not reach them. The build's id is the one that debuggers and `readelf -n` show.
std::string build_facts();

}  // namespace dtrun::cmd
