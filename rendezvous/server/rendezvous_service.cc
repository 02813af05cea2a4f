#include "rendezvous/server/rendezvous_service.h"

#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include "rendezvous/wire/convert.h"
#include "rendezvous/wire/intake.h"

namespace dtrun::rendezvous {
namespace {

grpc::Status does_not_lead() {
  return {grpc::StatusCode::FAILED_PRECONDITION, "another host is the coordinator"};
}

// Owns itself until gRPC says OnDone; the coordinator's reference may outlive that.
class GrpcAgentStream final : public grpc::ServerBidiReactor<v1::FromAgent, v1::FromCoordinator>,
                              public AgentStream,
                              public std::enable_shared_from_this<GrpcAgentStream> {
 public:
  GrpcAgentStream(ConnectionId id, grpc::CallbackServerContext* context, Coordinator& coordinator,
                  Strand& strand)
      : id_(id),
        context_(context),
        peer_address_(address_of_peer(context->peer())),
        coordinator_(coordinator),
        strand_(strand) {}

  void start(std::shared_ptr<GrpcAgentStream> self) {
    self_ = std::move(self);
    StartRead(&incoming_);
  }

  void send(v1::FromCoordinator message) override {
    const std::lock_guard lock(mutex_);
    if (closing_) return;
    outbox_.push_back(std::move(message));
    if (outbox_.size() == 1) StartWrite(&outbox_.front());
  }

  void close(bool abort) override {
    const std::lock_guard lock(mutex_);
    if (abort && !finished_) context_->TryCancel();
    closing_ = true;
    finish_if_flushed();
  }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) {
      report_broken();
      return close(false);
    }
    make_printable(&incoming_);
    if (const auto why = too_long(incoming_)) return refuse(*why);
    if (incoming_.has_trace_part()) {
      strand_.post([self = self_, part = std::move(*incoming_.mutable_trace_part())]() mutable {
        if (!self->gone_ && self->known_) self->coordinator_.traced(self->id_, std::move(part));
      });
      incoming_.Clear();
      return StartRead(&incoming_);
    }
    Event event = to_event(id_, incoming_, peer_address_);
    incoming_.Clear();  // ten thousand Joins are not kept until the first heartbeats overwrite them
    strand_.post([self = self_, event = std::move(event)]() mutable { self->take(std::move(event)); });
    StartRead(&incoming_);
  }

  void refuse(const std::string& why) {
    v1::FromCoordinator message;
    message.mutable_rejected()->set_reason(v1::Rejected::NOT_PERMITTED);
    message.mutable_rejected()->set_message(why);
    send(std::move(message));
    report_broken();
    close(false);
  }

  // On the strand. gRPC may report the peer's end while its last message is still being read.
  void take(Event event) {
    if (gone_) return;
    if (!std::exchange(known_, true) && !coordinator_.opened(id_, shared_from_this())) {
      gone_ = true;
      const std::lock_guard lock(mutex_);
      end_ = does_not_lead();
      closing_ = true;
      return finish_if_flushed();
    }
    coordinator_.received(std::move(event));
  }

  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    outbox_.pop_front();
    if (!ok) {
      outbox_.clear();
      closing_ = true;
    }
    if (!outbox_.empty()) StartWrite(&outbox_.front());
    finish_if_flushed();
  }

  void OnCancel() override {
    report_broken();
    close(false);
  }

  void OnDone() override { self_.reset(); }

  void report_broken() {
    if (broken_.exchange(true)) return;
    strand_.post([self = self_] {
      self->gone_ = true;
      self->coordinator_.broken(self->id_);
    });
  }

  // REQUIRES: mutex_ held.
  void finish_if_flushed() {
    if (!closing_ || finished_ || !outbox_.empty()) return;
    finished_ = true;
    Finish(end_);
  }

  const ConnectionId id_;
  grpc::CallbackServerContext* const context_;
  const std::string peer_address_;
  Coordinator& coordinator_;
  Strand& strand_;
  v1::FromAgent incoming_;
  std::atomic<bool> broken_{false};
  std::shared_ptr<GrpcAgentStream> self_;

  // The strand's.
  bool known_ = false;  // to the coordinator, since the first message
  bool gone_ = false;   // it was told so

  std::mutex mutex_;                        // guards the rest
  std::deque<v1::FromCoordinator> outbox_;  // the front is being written
  bool closing_ = false;
  bool finished_ = false;
  grpc::Status end_;
};

// A Status call that is answered at the end of a run. Owns itself until gRPC says OnDone, which is when the
// answer has been written.
class EndWait final : public grpc::ServerUnaryReactor, public std::enable_shared_from_this<EndWait> {
 public:
  EndWait(ConnectionId id, v1::StatusReply* reply, Coordinator& coordinator, Strand& strand,
          std::atomic<int>& count)
      : id_(id), reply_(reply), coordinator_(coordinator), strand_(strand), count_(count) {
    ++count_;
  }

  void start(std::shared_ptr<EndWait> self, const std::string& run_id) {
    self_ = std::move(self);
    strand_.post([self = self_, run_id] {
      if (self->finished_) return;
      if (!self->coordinator_.leads()) {
        self->end_ = does_not_lead();
        return self->finish();
      }
      self->coordinator_.await_end(self->id_, run_id, [self](v1::StatusReply reply) {
        *self->reply_ = std::move(reply);
        self->finish();
      });
    });
  }

 private:
  void OnCancel() override {
    strand_.post([self = self_] {
      self->coordinator_.forget_waiter(self->id_);
      self->finish();
    });
  }

  void OnDone() override {
    --count_;
    self_.reset();
  }

  // On the strand.
  void finish() {
    if (!std::exchange(finished_, true)) Finish(end_);
  }

  const ConnectionId id_;
  v1::StatusReply* const reply_;
  Coordinator& coordinator_;
  Strand& strand_;
  std::atomic<int>& count_;
  std::shared_ptr<EndWait> self_;
  bool finished_ = false;  // the strand's, as the next
  grpc::Status end_;
};

}  // namespace

grpc::ServerBidiReactor<v1::FromAgent, v1::FromCoordinator>* RendezvousService::Join(
    grpc::CallbackServerContext* context) {
  auto stream = std::make_shared<GrpcAgentStream>(next_id_++, context, coordinator_, strand_);
  GrpcAgentStream* reactor = stream.get();
  reactor->start(std::move(stream));
  return reactor;
}

grpc::ServerUnaryReactor* RendezvousService::Status(grpc::CallbackServerContext* context,
                                                    const v1::StatusRequest* request,
                                                    v1::StatusReply* reply) {
  if (request->at_end()) {
    auto wait = std::make_shared<EndWait>(next_id_++, reply, coordinator_, strand_, waiters_);
    EndWait* reactor = wait.get();
    reactor->start(std::move(wait), request->run_id());
    return reactor;
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  strand_.post([this, reactor, run_id = request->run_id(), reply] {
    if (!coordinator_.leads()) return reactor->Finish(does_not_lead());
    *reply = coordinator_.status(run_id);
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

grpc::ServerUnaryReactor* RendezvousService::Trace(grpc::CallbackServerContext* context,
                                                   const v1::TraceRequest* request, v1::TraceReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  strand_.post([this, reactor, request = *request, reply] {
    if (!coordinator_.leads()) return reactor->Finish(does_not_lead());
    coordinator_.trace(request, [reactor, reply](v1::TraceReply answer) {
      *reply = std::move(answer);
      reactor->Finish(grpc::Status::OK);
    });
  });
  return reactor;
}

}  // namespace dtrun::rendezvous
