// Writes a Program node by node while it follows the shapes. A model is a function that calls it
// (worker/model/models.h).
#pragma once

#include <string>

#include "worker/model/program.h"

namespace dtrun::worker {

class ProgramBuilder {
 public:
  explicit ProgramBuilder(const SampleSpec& sample);

  Value input() const { return 0; }
  const SampleShape& row(Value value) const { return program_.values[value].row; }

  // Each function adds a node that reads `in` and returns the value that the node makes. Parameters are named
  // NAME.weight and NAME.bias.
  // REQUIRES of conv and max_pool: `in` with its padding is at least kernel x kernel
  Value conv(Value in, const std::string& name, int out_channels, int kernel, int stride = 1, int padding = 0,
             bool bias = true);
  Value max_pool(Value in, int kernel) { return max_pool(in, kernel, kernel, 0); }
  Value max_pool(Value in, int kernel, int stride, int padding);
  Value global_average_pool(Value in);  // one value a channel
  Value flatten(Value in);
  // PyTorch's linear layer: its weight is [out, in]; weight and bias begin as U(-1/sqrt(fan_in),
  // 1/sqrt(fan_in)).
  Value linear(Value in, const std::string& name, int out_features, bool bias = true);
  // GPT-2's linear layer: its weight is [in, out], and its bias begins at 0.
  Value conv1d(Value in, const std::string& name, int out_features, Init init);
  // Multiplies by another node's weight; has no bias.
  Value tied_linear(Value in, std::size_t weight);
  Value relu(Value in);
  Value gelu(Value in);
  Value layer_norm(Value in, const std::string& name);
  // Of each channel. Its running statistics are named NAME.running_mean and NAME.running_var.
  Value batch_norm(Value in, const std::string& name, bool images, double epsilon = 1e-5,
                   double momentum = 0.1);
  Value embedding(Value in, const std::string& name, int classes, int width, Init init);
  Value add_positions(Value in, const std::string& name, int positions, Init init);
  Value attention(Value in, int heads);
  Value dropout(Value in, double probability);  // no node if it is 0
  Value add(Value left, Value right);

  // The nodes from here to the next call are one segment.
  void begin_segment() { ++segment_; }
  void end_segments() { segment_ = -1; }

  // The index of a parameter by its name, for tied_linear().
  std::size_t parameter(const std::string& name) const;

  // Adds the loss of `logits` and cuts the buckets.
  Program finish(Value logits);

 private:
  std::size_t add_parameter(std::string name, std::vector<std::int64_t> shape, Init init,
                            bool running = false);
  Value push(const Op& op, std::array<Value, 2> in, ValueShape out);
  Value push(const Op& op, Value in, SampleShape out_row);

  Program program_;
  int segment_ = -1;
};

}  // namespace dtrun::worker
