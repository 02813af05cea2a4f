// A gRPC channel that is one connection: none of gRPC's resolvers, proxies, retries and reconnects in
// between.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/support/channel_arguments.h>

#include <memory>
#include <optional>

#include "rendezvous/client/endpoint.h"
#include "rendezvous/identity/job_key.h"

namespace dtrun::rendezvous {

// Opens a channel to the peer of `dialled` and takes its descriptor. With a key both sides prove that they
// have it, and everything is encrypted.
std::shared_ptr<grpc::Channel> open_channel(const Dialled& dialled, int port,
                                            const std::optional<JobKey>& key,
                                            grpc::ChannelArguments arguments = {});

}  // namespace dtrun::rendezvous
