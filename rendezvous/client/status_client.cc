#include "rendezvous/client/status_client.h"

#include <grpcpp/create_channel_posix.h>

#include "proto/rendezvous.grpc.pb.h"
#include "rendezvous/client/endpoint.h"
#include "rendezvous/wire/grpc_setup.h"

namespace dtrun::rendezvous {

Result<v1::StatusReply> fetch_status(const std::string& host, int port, const std::string& run_id,
                                     std::chrono::milliseconds timeout) {
  set_up_grpc();
  const std::string endpoint = endpoint_text(host, port);
  const Interrupt never;
  const Dialled dialled = dial(host, port, timeout, never);
  if (dialled.fd < 0)
    return Status(kExitUnavailable, "no coordinator at " + endpoint + " (" + dialled.error + ")");
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  const auto channel = grpc::CreateCustomInsecureChannelFromFd(endpoint, dialled.fd, arguments);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + timeout);
  v1::StatusRequest request;
  request.set_run_id(run_id);
  v1::StatusReply reply;
  const grpc::Status status = v1::Rendezvous::NewStub(channel)->Status(&context, request, &reply);
  if (status.ok()) return reply;
  return Status(kExitUnavailable, "what listens at " + endpoint +
                                      " gave no status, so it is no dtrun coordinator (" +
                                      status.error_message() + ")");
}

}  // namespace dtrun::rendezvous
