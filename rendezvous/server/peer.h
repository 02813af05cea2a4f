// Who is at the other end of a call, and whether it may ask for what it asks for.
#pragma once

#include <grpcpp/server_context.h>

#include <string>

#include "rendezvous/identity/permit.h"

namespace dtrun::rendezvous {

// The common name of its certificate, which the handshake has checked; "" where there is no key.
inline std::string peer_name(const grpc::ServerContextBase& context) {
  const auto names = context.auth_context()->FindPropertyValues("x509_common_name");
  return names.empty() ? "" : std::string(names.front().data(), names.front().size());
}

// Of the answer of permit.h.
inline grpc::Status status_of_refusal(const std::optional<std::string>& refusal) {
  return refusal ? grpc::Status(grpc::StatusCode::PERMISSION_DENIED, *refusal) : grpc::Status::OK;
}

}  // namespace dtrun::rendezvous
