#include "worker/device/cuda/microbatch_upload.h"

#include <algorithm>
#include <cstring>

#include "worker/device/cuda/failure.h"
#include "worker/device/wrong_data.h"

namespace dtrun::worker::cuda {
namespace {

// 256 bytes, so that each part begins where kernels read fastest.
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

// Where the parts of a microbatch lie, in words.
struct Parts {
  Parts(std::size_t targets, std::size_t values, std::size_t tokens)
      : values(aligned(targets)),
        tokens(this->values + aligned(values)),
        order(this->tokens + aligned(tokens)),
        begins(order + aligned(tokens)),
        ids(begins + aligned(tokens + 1)),
        end(ids + aligned(tokens)) {}
  std::size_t values, tokens, order, begins, ids, end;
};

}  // namespace

MicrobatchUpload::MicrobatchUpload(const Program& program, int capacity, CudaArithmetic& arithmetic,
                                   CudaStream& stream)
    : capacity_(static_cast<std::size_t>(capacity)),
      values_(values_of(program, capacity, SampleSpec::Input::kValues)),
      tokens_(values_of(program, capacity, SampleSpec::Input::kTokens)),
      targets_(static_cast<std::size_t>(capacity) * program.sample.targets),
      classes_(target_classes(program)),
      token_classes_(token_classes(program)),
      stream_(stream),
      sorter_(static_cast<std::size_t>(token_classes_)),
      device_(
          arithmetic.allocate_bytes(Parts(targets_, values_, tokens_).end * sizeof(float), "a microbatch")) {
  for (Slot& slot : slots_) {
    slot.host = arithmetic.allocate(Where::kHost, device_.size());
    // Who waits for a microbatch's turn sleeps: it is long.
    cuda::check(cudaEventCreateWithFlags(&slot.copied, cudaEventDisableTiming | cudaEventBlockingSync),
                "making an event");
  }
}

MicrobatchUpload::~MicrobatchUpload() {
  for (Slot& slot : slots_) {
    // The copy reads the slot.
    if (slot.used) cudaEventSynchronize(slot.copied);
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

MicrobatchUpload::OnDevice MicrobatchUpload::upload(const Microbatch& microbatch) {
  check(microbatch);
  Slot& slot = slots_[next_++ % kSlots];
  if (slot.used) cuda::check(cudaEventSynchronize(slot.copied), "copying a microbatch");
  const Parts parts(targets_, values_, tokens_);
  float* const host = slot.host.data();
  auto* const words = reinterpret_cast<std::int32_t*>(host);
  std::copy_n(microbatch.targets, targets_, words);
  if (values_ > 0) std::copy_n(microbatch.values, values_, host + parts.values);
  std::size_t different = 0;
  if (tokens_ > 0) {
    std::copy_n(microbatch.tokens, tokens_, words + parts.tokens);
    different = sorter_.sort({microbatch.tokens, tokens_}, words + parts.order, words + parts.begins,
                             words + parts.ids);
  }
  cuda::check(cudaMemcpyAsync(device_.data(), host, parts.end * sizeof(float), cudaMemcpyHostToDevice,
                              stream_.handle()),
              "copying a microbatch");
  cuda::check(cudaEventRecord(slot.copied, stream_.handle()), "recording an event");
  slot.used = true;
  const auto* const there = reinterpret_cast<const std::int32_t*>(device_.data());
  return {.values = device_.data() + parts.values,
          .tokens = there + parts.tokens,
          .targets = there,
          .runs = {.order = there + parts.order,
                   .begins = there + parts.begins,
                   .ids = there + parts.ids,
                   .count = different}};
}

}  // namespace dtrun::worker::cuda
