// Three passes: forward's calls and the values that share memory; backward's calls, from the last node to the
// first; then each piece of memory, whose first and last use are known by now, gets its place.
#include "worker/model/plan.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "proto/core/overloaded.h"
#include "worker/base/error.h"

namespace dtrun::worker {
namespace {

// The rows of logits that are computed at a time fill about this many floats.
constexpr std::size_t kLogitFloats = std::size_t{1} << 20;

// A piece of memory: from the call that first writes it to the one that last uses it.
struct MemoryPiece {
  std::size_t floats = 0;
  int first = -1, last = -1;
  std::size_t offset = kNowhere;
};

class Planner {
 public:
  Planner(const Program& program, int rows, const PlanFor& device)
      : program_(program),
        device_(device),
        rows_(padded(static_cast<std::size_t>(rows))),
        values_(program.values.size()),
        nodes_(static_cast<int>(program.nodes.size())),
        producer_(values_, -1),
        readers_(values_),
        needs_gradient_(values_, false),
        value_(values_, kNone),
        again_(values_, kNone),
        gradient_(values_, kNone),
        aux_(nodes_, kNone),
        aux_again_(nodes_, kNone),
        read_only_(values_, false),
        parameter_written_(program.parameters.size(), false) {}

  Plan run() {
    look_around();
    plan_forward();
    plan_backward();
    place();
    plan_work_memory();
    return std::move(plan_);
  }

 private:
  static constexpr int kNone = -1, kSamples = -2;  // instead of the index of a piece

  const Node& node(int n) const { return program_.nodes[n]; }
  int clock() const { return static_cast<int>(plan_.forward.size() + plan_.backward.size()); }

  void look_around() {
    for (int n = 0; n < nodes_; ++n) {
      producer_[node(n).out] = n;
      bool needs = !parameters_of(node(n).op).empty();
      for (const Value in : node(n).in) {
        if (in == kNoValue) continue;
        readers_[in].push_back(n);
        needs = needs || needs_gradient_[in];
      }
      needs_gradient_[node(n).out] = needs;
      std::size_t end = parameters_end_.back();
      for (const std::size_t index : parameters_of(node(n).op))
        end = std::max(end, program_.parameters[index].offset + program_.parameters[index].size);
      parameters_end_.push_back(end);
    }
    plan_.classifier = nodes_ - 2;
    const bool fits = nodes_ >= 2 && std::holds_alternative<Linear>(node(plan_.classifier).op) &&
                      readers_[node(plan_.classifier).out] == std::vector{nodes_ - 1};
    if (!fits)
      throw WorkerError(kExitSoftware, "this program cannot be planned: its loss follows no linear layer");
  }

  // ---- pieces

  int new_piece(std::size_t floats) {
    pieces_.push_back({.floats = floats, .first = clock(), .last = clock()});
    // Backward reads it in any case. What nobody reads is written beside the next call's output, too.
    if (device_.forward_only) use(static_cast<int>(pieces_.size()) - 1);
    return static_cast<int>(pieces_.size()) - 1;
  }
  void use(int piece) {
    if (piece >= 0)
      pieces_[piece].last = std::max(pieces_[piece].last, clock() + (device_.joins_calls ? 1 : 0));
  }
  std::size_t size_of(Value value) const { return rows_ * program_.values[value].size(); }
  bool grouped() const { return device_.group > 1; }
  std::size_t padded(std::size_t size) const {
    const auto group = static_cast<std::size_t>(device_.group);
    return (size + group - 1) / group * group;
  }

  // ---- forward

  bool backward_needs(Value value) const {
    const bool read = std::ranges::any_of(
        readers_[value], [&](int n) { return n != nodes_ - 1 && backward_reads(node(n).op, device_).in; });
    return read || (producer_[value] >= 0 && backward_reads(node(producer_[value]).op, device_).out);
  }

  // Values that are kept from forward on: all but what a segment makes for itself.
  bool is_inner(Value value) const {
    const int segment = producer_[value] < 0 ? -1 : node(producer_[value]).segment;
    return segment >= 0 &&
           std::ranges::all_of(readers_[value], [&](int n) { return node(n).segment == segment; });
  }

  // The piece that the node's output goes to; `of`: value_, or again_ while a segment is recomputed.
  int piece_for_output(int n, std::vector<int>& of) {
    const Node& made = node(n);
    if (const auto k = forward_in_place(made.op)) {
      const Value in = made.in[*k];
      const int piece = of[in];
      const bool view = std::holds_alternative<Flatten>(made.op);
      const bool free = readers_[in].size() == 1 && !backward_needs(in) && piece >= 0;
      if (view || free) {
        use(piece);
        return piece;
      }
    }
    return new_piece(size_of(made.out));
  }

  int new_aux(int n) {
    const std::size_t floats = aux_of(node(n).op, rows_ * program_.values[node(n).in[0]].rows, device_);
    return floats == 0 ? kNone : new_piece(floats * device_.float_elements);
  }

  void plan_forward() {
    value_[0] = again_[0] = grouped() ? new_piece(size_of(0)) : kSamples;
    for (int n = 0; n < plan_.classifier; ++n) {
      for (const Value in : node(n).in)
        if (in != kNoValue) use(value_[in]);
      value_[node(n).out] = piece_for_output(n, value_);
      aux_[n] = new_aux(n);
      plan_.forward.push_back({.node = n});
    }
  }

  // ---- backward

  // Runs again the segment's nodes whose outputs backward needs and forward did not keep.
  void recompute(int segment) {
    std::vector<bool> wanted(values_, false);
    int first = plan_.classifier, last = -1;
    for (int n = 0; n < plan_.classifier; ++n) {
      if (node(n).segment != segment) continue;
      first = std::min(first, n), last = n;
    }
    for (int n = last; n >= first; --n) {
      const Value out = node(n).out;
      if (!is_inner(out)) continue;
      wanted[out] = wanted[out] || backward_needs(out) || aux_[n] != kNone;
      if (!wanted[out]) continue;
      for (const Value in : node(n).in)
        if (in != kNoValue) wanted[in] = true;
    }
    for (int n = first; n <= last; ++n) {
      const Value out = node(n).out;
      if (!is_inner(out) || !wanted[out]) continue;
      for (const Value in : node(n).in)
        if (in != kNoValue) use(again_[in]);
      again_[out] = piece_for_output(n, again_);
      aux_again_[n] = new_aux(n);
      plan_.backward.push_back({.node = n});
    }
  }

  void plan_backward() {
    for (int v = 1; v < static_cast<int>(values_); ++v)
      if (!is_inner(v)) again_[v] = value_[v];
    for (int n = 0; n < nodes_; ++n)
      if (node(n).segment < 0) aux_again_[n] = aux_[n];

    plan_classifier();
    if (device_.forward_only) return;
    int segment = -1;
    for (int n = plan_.classifier - 1; n >= 0; --n) {
      if (node(n).segment != segment && node(n).segment >= 0) recompute(node(n).segment);
      segment = node(n).segment;
      plan_backward_of(n);
    }
  }

  void plan_classifier() {
    Call call{.node = nodes_ - 1, .backward = true};
    const Value in = node(plan_.classifier).in[0];
    use(again_[in]);
    const std::size_t all = rows_ * static_cast<std::size_t>(program_.sample.targets);
    const auto classes = static_cast<std::size_t>(std::get<Linear>(node(plan_.classifier).op).out_features);
    plan_.logit_width = device_.whole_logits ? padded_classes(classes) : classes;
    plan_.logit_rows =
        device_.whole_logits || grouped() ? all : std::clamp<std::size_t>(kLogitFloats / classes, 1, all);
    logits_ = new_piece(plan_.logit_rows * plan_.logit_width);
    if (needs_gradient_[in] && !device_.forward_only) {
      call.in[0] = Into::kWrite;
      gradient_[in] = new_piece(size_of(in));
    }
    end_call(call, plan_.classifier);
  }

  void plan_backward_of(int n) {
    const Node& at = node(n);
    const std::vector<std::size_t> parameters = parameters_of(at.op);
    const auto wants = [&](int k) { return at.in[k] != kNoValue && needs_gradient_[at.in[k]]; };
    if (parameters.empty() && !wants(0) && !wants(1)) return;
    Call call{.node = n, .backward = true};
    use(gradient_[at.out]);
    if (backward_reads(at.op, device_).in) use(again_[at.in[0]]);
    if (backward_reads(at.op, device_).out) use(again_[at.out]);
    use(aux_again_[n]);
    for (int k = 0; k < 2; ++k)
      if (wants(k)) call.in[k] = plan_gradient(n, k, call);
    end_call(call, n);
  }

  Into plan_gradient(int n, int k, const Call& call) {
    const Node& at = node(n);
    const Value in = at.in[k];
    if (gradient_[in] != kNone) {
      use(gradient_[in]);
      return Into::kAdd;
    }
    const bool first_shares = k == 1 && call.in[0] == Into::kShare;
    if (is_elementwise(at.op) && at.in[0] != at.in[1] && !read_only_[at.out] &&
        (!first_shares || both_may_share(n))) {
      gradient_[in] = gradient_[at.out];
      read_only_[in] = first_shares;
      return Into::kShare;
    }
    gradient_[in] = new_piece(size_of(in));
    return Into::kWrite;
  }

  // Whether both inputs of an addition may have their gradients in one place: until the node that makes the
  // second input has used the second's, nothing may be added to the first input's, nor may the node that
  // makes the first have written over it.
  bool both_may_share(int n) const {
    const Value first = node(n).in[0], second = node(n).in[1];
    if (readers_[second].size() != 1 || producer_[first] > producer_[second]) return false;
    return std::ranges::all_of(readers_[first],
                               [&](int reader) { return reader >= n || reader < producer_[second]; });
  }

  // `n`: the node whose parameters' gradients the call makes.
  void end_call(Call call, int n) {
    for (const std::size_t parameter : parameters_of(node(n).op)) {
      call.parameters = parameter_written_[parameter] ? Into::kAdd : Into::kWrite;
      parameter_written_[parameter] = true;
    }
    const std::size_t final_from = parameters_end_[n];
    if (final_from < final_from_) call.final_from = final_from_ = final_from;
    plan_.backward.push_back(call);
  }

  // ---- memory

  // The largest first, each at the lowest place that is free for all of its life.
  void place() {
    std::vector<MemoryPiece*> order;
    for (MemoryPiece& piece : pieces_) order.push_back(&piece);
    std::ranges::stable_sort(
        order, [](const MemoryPiece* a, const MemoryPiece* b) { return a->floats > b->floats; });
    std::vector<const MemoryPiece*> placed;  // by offset
    for (MemoryPiece* piece : order) {
      std::size_t offset = 0;
      for (const MemoryPiece* other : placed) {
        if (other->last < piece->first || other->first > piece->last) continue;
        if (offset + piece->floats <= other->offset) break;
        offset = std::max(offset, aligned(other->offset + other->floats));
      }
      piece->offset = offset;
      plan_.arena = std::max(plan_.arena, offset + piece->floats);
      placed.insert(std::ranges::upper_bound(placed, offset, {}, &MemoryPiece::offset), piece);
    }
    plan_.value = offsets(value_), plan_.value_again = offsets(again_), plan_.gradient = offsets(gradient_);
    plan_.aux = offsets(aux_), plan_.aux_again = offsets(aux_again_);
    plan_.logits = pieces_[logits_].offset;
  }
  void plan_work_memory() {
    plan_.group = device_.group;
    plan_.forward_only = device_.forward_only;
    if (grouped()) plan_.columns = static_cast<std::size_t>(device_.group) * plan_.logit_width;
    for (const Node& node : program_.nodes) {
      const auto* const linear = std::get_if<Linear>(&node.op);
      if (grouped() && linear != nullptr)
        plan_.columns =
            std::max(plan_.columns, rows_ * padded(static_cast<std::size_t>(linear->in_features)));
      const ValueShape& out = program_.values[node.out];
      if (std::holds_alternative<Attention>(node.op))
        plan_.scores = std::max(plan_.scores, 2 * kQueryRows * static_cast<std::size_t>(out.rows));
      if (const auto* conv = std::get_if<Conv2d>(&node.op); conv != nullptr && !grouped())
        plan_.columns = std::max(plan_.columns, static_cast<std::size_t>(conv->in_channels) * conv->kernel *
                                                    conv->kernel * out.row.height * out.row.width);
    }
  }
  std::size_t aligned(std::size_t elements) const {
    return (elements + device_.alignment - 1) / device_.alignment * device_.alignment;
  }
  std::vector<std::size_t> offsets(const std::vector<int>& pieces) const {
    std::vector<std::size_t> found;
    for (const int piece : pieces)
      found.push_back(piece >= 0 ? pieces_[piece].offset : piece == kSamples ? kInput : kNowhere);
    return found;
  }

  const Program& program_;
  const PlanFor device_;
  const std::size_t rows_, values_;
  const int nodes_;
  std::vector<int> producer_;              // of each value: its node
  std::vector<std::vector<int>> readers_;  // of each value: the nodes
  std::vector<bool> needs_gradient_;
  std::vector<std::size_t> parameters_end_{0};  // [n]: no node in front of n has a parameter from there on
  Plan plan_;
  std::vector<MemoryPiece> pieces_;
  // Indices of pieces, of each value or node.
  std::vector<int> value_, again_, gradient_, aux_, aux_again_;
  int logits_ = kNone;
  std::vector<bool> read_only_;  // of each value: its gradient's memory is another value's too
  std::vector<bool> parameter_written_;
  std::size_t final_from_ = SIZE_MAX;
};

}  // namespace

bool fits_groups(const Program& program) {
  bool images = false;
  Value value = 0;
  return std::ranges::all_of(program.nodes, [&](const Node& node) {
    images = images || std::holds_alternative<Conv2d>(node.op) || std::holds_alternative<MaxPool2d>(node.op);
    const bool in_line = node.in == std::array{std::exchange(value, node.out), kNoValue};
    return in_line &&
           std::visit(Overloaded{
                          [](const Conv2d& l) { return l.stride == 1 && l.padding == 0 && l.bias; },
                          [](const MaxPool2d& l) { return l.stride == l.kernel && l.padding == 0; },
                          [](const Relu&) { return true; },
                          [](const Flatten&) { return true; },
                          [](const Linear& l) { return l.bias && !l.in_first; },
                          [&](const LogSoftmaxNll&) { return images; },
                          [](const auto&) { return false; },
                      },
                      node.op);
  });
}

Plan make_plan(const Program& program, int rows, const PlanFor& device) {
  return Planner(program, rows, device).run();
}

}  // namespace dtrun::worker
