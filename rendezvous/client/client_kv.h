// One store operation of a worker, from the control protocol to the Store service and back.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <functional>
#include <memory>
#include <string>

#include "proto/control.pb.h"

namespace dtrun::rendezvous {

// Starts the operation under `prefix`; `done` is called exactly once, on one of gRPC's threads. Its second
// argument is true if the connection broke, so that the outcome of the operation is unknown. Returns the
// call's context while it is under way, so that it can be cancelled.
std::weak_ptr<grpc::ClientContext> start_kv(const std::shared_ptr<grpc::Channel>& channel,
                                            const std::string& prefix, const control::KvRequest& request,
                                            std::function<void(control::KvReply, bool unreachable)> done);

}  // namespace dtrun::rendezvous
