#include "rendezvous/server/door.h"

#include <algorithm>
#include <ctime>

#include "rendezvous/identity/identity.h"
#include "rendezvous/server/gate.h"
#include "rendezvous/server/strand.h"

namespace dtrun::rendezvous {
namespace {

std::string property(const grpc::AuthContext& peer, const char* name) {
  const auto found = peer.FindPropertyValues(name);
  return found.empty() ? "" : std::string(found.front().data(), found.front().size());
}

std::string held_of(GuestCalls::Kind kind) {
  return kind == GuestCalls::kMember ? std::to_string(GuestLimits::kMembers) + " nodes"
                                     : std::to_string(GuestLimits::kWaiters) + " calls that wait";
}

}  // namespace

Millis CallerIdentity::left() const {
  constexpr std::int64_t kLongest = std::numeric_limits<std::int32_t>::max();  // seconds: decades
  return 1000 * std::clamp<std::int64_t>(until - std::time(nullptr), 0, kLongest);
}

std::optional<std::string> CallerIdentity::ended() const {
  if (left() > 0) return std::nullopt;
  return "the scoped token for run " + guest.value_or("") +
         " has ended; ask for a new one where the store runs";
}

std::optional<std::string> CallerIdentity::refusal(const std::string& run_id) const {
  const auto over = ended();
  return over ? over : refusal_of(name, run_id);
}

std::optional<std::string> CallerIdentity::refusal_for_key(const std::string& key) const {
  const auto over = ended();
  return over ? over : refusal_of_key(name, key);
}

grpc::Status status_of_refusal(const std::optional<std::string>& refusal) {
  return refusal ? grpc::Status(grpc::StatusCode::PERMISSION_DENIED, *refusal) : grpc::Status::OK;
}

grpc::ServerUnaryReactor* finished(grpc::CallbackServerContext* context, const grpc::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

Door::Share::~Share() {
  if (door_ == nullptr) return;
  const std::lock_guard lock(door_->mutex_);
  door_->calls_.give_back(guest_, kind_);
}

CallerIdentity Door::caller(const grpc::ServerContextBase& context) const {
  if (gate_ == nullptr) return {};
  const auto peer = context.auth_context();
  CallerIdentity caller;
  caller.name = property(*peer, "x509_common_name");
  caller.guest = guest_of(caller.name);
  // A member's certificate ends with the year 9999, which need not be checked.
  if (caller.guest) caller.until = end_of_certificate(property(*peer, "x509_pem_cert")).value_or(0);
  return caller;
}

std::optional<Door::Share> Door::share(const CallerIdentity& caller, GuestCalls::Kind kind) {
  if (!caller.guest) return Share();
  const std::lock_guard lock(mutex_);
  if (!calls_.take(*caller.guest, kind)) return std::nullopt;
  return Share(this, *caller.guest, kind);
}

grpc::Status Door::has_its_share(const CallerIdentity& caller, GuestCalls::Kind kind) {
  return {grpc::StatusCode::RESOURCE_EXHAUSTED, "run " + caller.guest.value_or("") + " has " + held_of(kind) +
                                                    " here already, as many as a scoped token may"};
}

grpc::Status Door::knocked(const grpc::AuthContext& peer) {
  const std::optional<std::string> guest = guest_of(property(peer, "x509_common_name"));
  if (!guest) return grpc::Status::OK;
  {
    const std::lock_guard lock(mutex_);
    if (calls_.begins(*guest, steady_now())) return grpc::Status::OK;
  }
  gate_->hang_up(*guest);
  return {grpc::StatusCode::RESOURCE_EXHAUSTED,
          "run " + *guest + " calls more often than a scoped token may"};
}

class Door::Knocker final : public grpc::AuthMetadataProcessor {
 public:
  explicit Knocker(Door& door) : door_(door) {}
  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata&, grpc::AuthContext* context, OutputMetadata*,
                       OutputMetadata*) override {
    return door_.knocked(*context);
  }

 private:
  Door& door_;
};

std::shared_ptr<grpc::AuthMetadataProcessor> Door::knocker() { return std::make_shared<Knocker>(*this); }

void Door::rang(const grpc::ServerContextBase& context) {
  if (gate_ == nullptr) return;
  const std::optional<std::string> guest = guest_of(property(*context.auth_context(), "x509_common_name"));
  gate_->came_in(context.peer(), guest);
  if (!guest) return;
  const std::lock_guard lock(mutex_);
  calls_.arrived(*guest);
}

class Door::Bell final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit Bell(Door& door) : door_(door) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(grpc::experimental::ServerRpcInfo* call) override {
    door_.rang(*call->server_context());
    return nullptr;
  }

 private:
  Door& door_;
};

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> Door::bell() {
  return std::make_unique<Bell>(*this);
}

}  // namespace dtrun::rendezvous
