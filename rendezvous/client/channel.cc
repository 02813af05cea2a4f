#include "rendezvous/client/channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/security/credentials.h>
#include <unistd.h>

#include <string>

#include "rendezvous/identity/identity.h"
#include "rendezvous/wire/grpc_setup.h"

namespace dtrun::rendezvous {
namespace {

// Longer than any channel lives: each channel makes one attempt, and a second one would be a reconnect.
constexpr int kNeverMs = 1'000'000'000;
constexpr int kHandshakeMs = 10'000;

}  // namespace

std::shared_ptr<grpc::Channel> open_channel(const Dialled& dialled, int port,
                                            const std::optional<JobKey>& key,
                                            grpc::ChannelArguments arguments) {
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetMaxReceiveMessageSize(-1);
  const std::string endpoint = endpoint_text(dialled.peer_address, port);
  if (!key) return grpc::CreateCustomInsecureChannelFromFd(endpoint, dialled.fd, arguments);
  // gRPC takes no other credentials on a descriptor: it connects again, to the address that answered.
  close(dialled.fd);
  set_up_tls();
  const Identity identity = make_identity(*key);
  grpc::SslCredentialsOptions ssl;
  ssl.pem_root_certs = identity.root;
  ssl.pem_private_key = identity.private_key;
  ssl.pem_cert_chain = identity.certificate;
  arguments.SetSslTargetNameOverride(kCertifiedName);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kNeverMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kNeverMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kHandshakeMs);  // the time that an attempt has
  const bool ipv6 = dialled.peer_address.find(':') != std::string::npos;
  return grpc::CreateCustomChannel((ipv6 ? "ipv6:" : "ipv4:") + endpoint, grpc::SslCredentials(ssl),
                                   arguments);
}

}  // namespace dtrun::rendezvous
