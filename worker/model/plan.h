// The calls of a device for one microbatch in their order, and the place of every value in memory: derived
// from a program once, without any device. Backward follows from the program: a value that several nodes read
// gets its gradient from the last reader to the first, so the order of additions is fixed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "worker/model/program.h"

namespace dtrun::worker {

// The way in which a backward call stores a gradient.
enum class Into : std::uint8_t {
  kNone,   // nobody needs it
  kWrite,  // it is the first: overwrite
  kAdd,    // a later node's part is there: add to it
  kShare,  // it lies where the gradient of the node's output lies: change that in place
};

struct Call {
  int node = 0;
  bool backward = false;
  // For a backward call: the gradients of Node::in.
  std::array<Into, 2> in{Into::kNone, Into::kNone};
  // For a backward call: the gradients of parameters_of(); kWrite or kAdd, the same for all of them.
  Into parameters = Into::kNone;
  // For a backward call: the flat gradient from this offset on is final once this call is done.
  std::size_t final_from = SIZE_MAX;
};

// Offsets into an arena, in elements (floats on the CPU); kNowhere: the value has no memory.
inline constexpr std::size_t kNowhere = SIZE_MAX;
inline constexpr std::size_t kInput = SIZE_MAX - 1;  // the value is the samples, which lie elsewhere

// A device's requirements of a plan. The defaults are the CPU's.
struct PlanFor {
  // Elements that a float of Plan::aux takes, which needs more precision than a value: 2 where values are
  // bf16.
  std::size_t float_elements = 1;
  std::size_t alignment = 16;  // of each piece of memory, in elements; 16 floats: a cache line
  // All rows of logits are in memory at a time, each as long as padded_classes() tells.
  bool whole_logits = false;
  // Attention keeps the logarithm of each query's sum for backward, and backward reads attention's output
  // too.
  bool attention_keeps_sums = false;
  // Two consecutive calls may run as one, so the values that the first reads stay until the second is done.
  bool joins_calls = false;
  // Samples of which each value lies side by side: [group][value of a sample][sample of the group], the last
  // group padded. Then the samples lie in the arena too, and so do all logits. 1: one sample lies after the
  // other. REQUIRES, if more: fits_groups(program).
  int group = 1;
  bool forward_only =
      false;  // of a model that is not trained: nothing is kept for backward, which is not planned
};

// Whether the program is a chain of the operations that have kernels for groups of samples.
bool fits_groups(const Program& program);

// The length of a row of logits that a device reads in vectors: a multiple of 64.
constexpr std::size_t padded_classes(std::size_t classes) { return (classes + 63) / 64 * 64; }

struct Plan {
  // The node of the linear layer that makes the logits. It and the loss are one call (of the loss' node), for
  // `logit_rows` rows at a time, each `logit_width` elements long, so that logits need not lie in memory as a
  // whole.
  int classifier = 0;
  std::vector<Call> forward;  // without the classifier
  std::vector<Call>
      backward;  // begins with the classifier; has forward calls of segments that are recomputed
  // The place of each value for the calls of `forward`, and for those of `backward`.
  std::vector<std::size_t> value, value_again;
  std::vector<std::size_t> gradient;        // of each value
  std::vector<std::size_t> aux, aux_again;  // of each node: floats besides values that its backward needs
                                            // from forward
  std::size_t logits = 0, logit_rows = 0, logit_width = 0;
  std::size_t arena = 0;  // elements
  // Beside the arena, in floats: room for attention's scores of kQueryRows queries and for their gradients;
  // for the windows of one sample's convolution, or with groups for the input of a linear layer in rows, each
  // padded to a multiple of the group, or a group's logits in rows.
  std::size_t scores = 0, columns = 0;
  int group = 1;              // PlanFor::group
  bool forward_only = false;  // then `backward` is the classifier alone, without a gradient
};

// Query rows that attention computes at a time: their scores against all keys stay in the cache, and keys
// behind the last of these rows are never computed.
inline constexpr std::size_t kQueryRows = 64;

// For microbatches of up to `rows` samples. Throws WorkerError (EX_SOFTWARE) if the loss follows no linear
// layer.
Plan make_plan(const Program& program, int rows, const PlanFor& device = {});

// Whether the node's backward reads its input, or its output.
struct BackwardReads {
  bool in = false, out = false;
};
BackwardReads backward_reads(const Op& op, const PlanFor& device = {});

// Whether backward changes each element of the gradient independently of the others, or not at all.
bool is_elementwise(const Op& op);

// The input on which forward may write its output.
std::optional<int> forward_in_place(const Op& op);

// Floats of Plan::aux for so many rows of the node's input.
std::size_t aux_of(const Op& op, std::size_t rows, const PlanFor& device = {});

}  // namespace dtrun::worker
