#include "worker/device/cuda/lane/microbatch_upload.h"

#include <algorithm>
#include <cstring>

#include "worker/device/cuda/failure.h"
#include "worker/device/wrong_data.h"

namespace dtrun::worker::cuda {
namespace {

// 256 bytes, the alignment at which kernels read fastest.
constexpr std::size_t kAlignment = 64;
std::size_t aligned(std::size_t words) { return (words + kAlignment - 1) / kAlignment * kAlignment; }

int token_classes(const Program& program) {
  for (const Node& node : program.nodes)
    if (const auto* const embedding = std::get_if<Embedding>(&node.op)) return embedding->classes;
  return 0;
}

int target_classes(const Program& program) {
  return std::get<LogSoftmaxNll>(program.nodes.back().op).classes;
}

std::size_t values_of(const Program& program, int capacity, SampleSpec::Input input) {
  return program.sample.input == input ? capacity * program.sample.shape.size() : 0;
}

std::size_t dropout_nodes(const Program& program) {
  const bool any = std::ranges::any_of(
      program.nodes, [](const Node& node) { return std::holds_alternative<Dropout>(node.op); });
  return any ? program.nodes.size() : 0;
}

constexpr std::size_t kDropoutWords = sizeof(RandomStream::Words) / sizeof(std::uint32_t);

// The offsets of a microbatch's parts, in words. Words 0, 1 and 2: the numbers of real rows, of all pieces,
// and of the pieces of tokens that have several.
struct UploadLayout {
  UploadLayout(std::size_t targets, std::size_t dropout, std::size_t values, std::size_t tokens)
      : targets(aligned(3)),
        dropout(this->targets + aligned(targets)),
        values(this->dropout + aligned(dropout * kDropoutWords)),
        tokens(this->values + aligned(values)),
        order(this->tokens + aligned(tokens)),
        begins(order + aligned(tokens)),
        ids(begins + aligned(tokens + 1)),
        end(ids + aligned(tokens)) {}
  std::size_t targets, dropout, values, tokens, order, begins, ids, end;
};

}  // namespace

MicrobatchUpload::MicrobatchUpload(const Program& program, int capacity, int gpu, CudaArithmetic& arithmetic,
                                   CudaStream& stream)
    : capacity_(static_cast<std::size_t>(capacity)),
      values_(values_of(program, capacity, SampleSpec::Input::kValues)),
      tokens_(values_of(program, capacity, SampleSpec::Input::kTokens)),
      targets_(static_cast<std::size_t>(capacity) * program.sample.targets),
      classes_(target_classes(program)),
      token_classes_(token_classes(program)),
      dropout_(dropout_nodes(program)),
      stream_(stream),
      copies_(gpu),
      timer_(arithmetic.timer()),
      sorter_(static_cast<std::size_t>(token_classes_)),
      device_(arithmetic.allocate_bytes(
          UploadLayout(targets_, dropout_, values_, tokens_).end * sizeof(float), "a microbatch")) {
  copies_.set_name("copies");
  for (UploadSlot& slot : slots_) {
    slot.host = arithmetic.allocate(Where::kHost, device_.size());
    slot.device = arithmetic.allocate_bytes(device_.size() * sizeof(float), "the next microbatch");
    // Blocking: a wait for a microbatch's turn is long, so the thread sleeps.
    cuda::check(cudaEventCreateWithFlags(&slot.copied, cudaEventDisableTiming | cudaEventBlockingSync),
                "making an event");
  }
}

MicrobatchUpload::~MicrobatchUpload() {
  for (UploadSlot& slot : slots_) {
    // The copy still reads the slot.
    cudaEventSynchronize(slot.copied);
    cudaEventDestroy(slot.copied);
  }
}

void MicrobatchUpload::check(const Microbatch& microbatch) const {
  for (const std::int32_t token : std::span(microbatch.tokens, tokens_))
    if (token < 0 || token >= token_classes_) throw wrong_token(token, token_classes_);
  const std::size_t real = targets_ / capacity_ * static_cast<std::size_t>(microbatch.samples);
  for (const std::int32_t target : std::span(microbatch.targets, real))
    if (target < 0 || target >= classes_) throw wrong_target(target, classes_);
}

void MicrobatchUpload::prepare(const Microbatch& microbatch) {
  prepared_.reset();
  check(microbatch);
  UploadSlot& slot = slots_[next_++ % kSlots];
  cuda::check(cudaEventSynchronize(slot.copied), "copying a microbatch");
  const UploadLayout parts(targets_, dropout_, values_, tokens_);
  float* const host = slot.host.data();
  auto* const words = reinterpret_cast<std::int32_t*>(host);
  words[0] = static_cast<std::int32_t>(targets_ / capacity_) * microbatch.samples;
  std::copy_n(microbatch.targets, targets_, words + parts.targets);
  for (std::size_t node = 0; node < dropout_; ++node) {
    const RandomStream::Words random = dropout_stream(microbatch.key, static_cast<int>(node)).words();
    std::memcpy(words + parts.dropout + node * kDropoutWords, &random, sizeof random);
  }
  if (values_ > 0) std::copy_n(microbatch.values, values_, host + parts.values);
  if (tokens_ > 0) {
    std::copy_n(microbatch.tokens, tokens_, words + parts.tokens);
    const TokenSorter::Pieces pieces = sorter_.sort({microbatch.tokens, tokens_}, words + parts.order,
                                                    words + parts.begins, words + parts.ids);
    words[1] = pieces.all, words[2] = pieces.cut;
  }
  const std::size_t bytes = parts.end * sizeof(float);
  slot.taken.make_wait(copies_.handle());
  {
    const EventTimer::Scope timed(timer_, copies_,
                                  [&] { return vector_op("uploading microbatches", 0, bytes); });
    cuda::check(cudaMemcpyAsync(slot.device.data(), host, bytes, cudaMemcpyHostToDevice, copies_.handle()),
                "copying a microbatch");
  }
  cuda::check(cudaEventRecord(slot.copied, copies_.handle()), "recording an event");
  prepared_ = {.key = microbatch.key, .slot = &slot};
}

void MicrobatchUpload::upload(const Microbatch& microbatch) {
  if (!is_prepared(microbatch.key)) prepare(microbatch);
  UploadSlot& slot = *prepared_->slot;
  prepared_.reset();
  const std::size_t bytes = slot.device.size() * sizeof(float);
  cuda::check(cudaStreamWaitEvent(stream_.handle(), slot.copied, 0), "waiting for a stream");
  {
    const EventTimer::Scope timed(timer_, stream_,
                                  [&] { return vector_op("uploading microbatches", bytes, bytes); });
    cuda::check(cudaMemcpyAsync(device_.data(), slot.device.data(), bytes, cudaMemcpyDeviceToDevice,
                                stream_.handle()),
                "copying a microbatch");
  }
  slot.taken.record(stream_.handle());
}

MicrobatchUpload::OnDevice MicrobatchUpload::there() const {
  const UploadLayout parts(targets_, dropout_, values_, tokens_);
  const auto* const words = reinterpret_cast<const std::int32_t*>(device_.data());
  const std::size_t cut = most_cut_pieces(tokens_);
  return {.values = device_.data() + parts.values,
          .tokens = words + parts.tokens,
          .targets = words + parts.targets,
          .real_rows = reinterpret_cast<const std::uint32_t*>(words),
          .dropout = reinterpret_cast<const RandomStream::Words*>(words + parts.dropout),
          .pieces = {.order = words + parts.order,
                     .begins = words + parts.begins,
                     .ids = words + parts.ids,
                     .counts = words + 1,
                     .most = std::min(tokens_, token_classes_ + cut),
                     .most_cut = cut}};
}

}  // namespace dtrun::worker::cuda
