#include "cmd/commands/build_facts.h"

#include <grpcpp/grpcpp.h>
#include <openssl/crypto.h>

#include "cmd/check/build.h"

namespace dtrun::cmd {

std::string build_facts() {
  const std::string id = build_id("/proc/self/exe");
  return "gRPC " + grpc::Version() + ", " + OpenSSL_version(OPENSSL_VERSION) + ", build " +
         (id.empty() ? "unknown" : id);
}

}  // namespace dtrun::cmd
