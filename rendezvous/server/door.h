// Checks every call before it is served: the caller, by the certificate that the handshake has verified, the
// end of a scoped token's time, and a guest's share of the store's resources. Thread-safe.
#pragma once

#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_interceptor.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "rendezvous/core/admission/guests.h"
#include "rendezvous/identity/authorization.h"

namespace dtrun::rendezvous {

class Gate;

struct CallerIdentity {
  PeerName name;
  std::optional<std::string> guest;                               // guest_of(name)
  std::int64_t until = std::numeric_limits<std::int64_t>::max();  // seconds since 1970: a scoped token's end

  // Milliseconds until its scoped token ends; 0: it has. Cheap enough for each message.
  Millis left() const;
  // The reason why it may not touch the run, or the key: authorization.h's, or that its scoped token has
  // ended.
  std::optional<std::string> refusal(const std::string& run_id) const;
  std::optional<std::string> refusal_for_key(const std::string& key) const;

 private:
  std::optional<std::string> ended() const;
};

grpc::Status status_of_refusal(const std::optional<std::string>& refusal);
// A call that ends at once.
grpc::ServerUnaryReactor* finished(grpc::CallbackServerContext* context, const grpc::Status& status);

class Door {
 public:
  // A guest's place, held for as long as this lives; for other callers nothing is counted.
  class Share {
   public:
    Share() = default;
    Share(Door* door, std::string guest, GuestCalls::Kind kind)
        : door_(door), guest_(std::move(guest)), kind_(kind) {}
    Share(Share&& other) noexcept
        : door_(std::exchange(other.door_, nullptr)), guest_(std::move(other.guest_)), kind_(other.kind_) {}
    Share& operator=(Share&&) = delete;
    ~Share();

   private:
    Door* door_ = nullptr;
    std::string guest_;
    GuestCalls::Kind kind_ = GuestCalls::kWaiter;
  };

  // To be called before the first call is served; null if there is no key.
  void stands_behind(Gate* gate) { gate_ = gate; }

  CallerIdentity caller(const grpc::ServerContextBase& context) const;
  // Nothing if the guest has its share.
  std::optional<Share> share(const CallerIdentity& caller, GuestCalls::Kind kind);
  static grpc::Status has_its_share(const CallerIdentity& caller, GuestCalls::Kind kind);

  // Sees every call when it begins, before its message is there, and refuses those beyond a guest's share.
  std::shared_ptr<grpc::AuthMetadataProcessor> knocker();
  // Sees every call before its service does, when its message is there.
  std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> bell();

 private:
  class Knocker;
  class Bell;
  grpc::Status knocked(const grpc::AuthContext& peer);
  void rang(const grpc::ServerContextBase& context);

  Gate* gate_ = nullptr;
  std::mutex mutex_;  // guards the next
  GuestCalls calls_;
};

}  // namespace dtrun::rendezvous
