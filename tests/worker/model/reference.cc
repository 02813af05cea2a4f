// One product at a time, and one sample but for batch norm; speed does not matter here.
#include "tests/worker/model/reference.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "worker/core/dropout.h"

namespace dtrun::worker::reference {
namespace {

using Values = std::vector<double>;

// One sample's value: [rows][channels][height][width].
struct Tensor {
  ValueShape shape;
  Values values;
  explicit Tensor(const ValueShape& s) : shape(s), values(s.size()) {}
  std::size_t width() const { return shape.row.size(); }
  double* row(int r) { return values.data() + r * width(); }
  const double* row(int r) const { return values.data() + r * width(); }
  // A value of an image, in the first row.
  double& at(int c, int y, int x) {
    return values[(static_cast<std::size_t>(c) * shape.row.height + y) * shape.row.width + x];
  }
  double at(int c, int y, int x) const { return const_cast<Tensor*>(this)->at(c, y, x); }
};

// One sample, node by node forward, keeping every value, then backward.
class Sample {
 public:
  Sample(const Program& program, std::span<const double> parameters, const Microbatch& microbatch, int number,
         bool training)
      : program_(program),
        parameters_(parameters),
        microbatch_(microbatch),
        number_(number),
        training_(training) {
    for (const ValueShape& shape : program.values) {
      values_.emplace_back(shape);
      gradients_.emplace_back(shape);
    }
    const std::size_t size = program.sample.shape.size();
    for (std::size_t i = 0; i < size; ++i) {
      values_[0].values[i] = program.sample.input == SampleSpec::Input::kValues
                                 ? microbatch.values[number * size + i]
                                 : microbatch.tokens[number * size + i];
    }
  }

  void forward(int n) {
    node_ = n;
    const Node& node = program_.nodes[n];
    std::visit([&](const auto& op) { forward(op, in(node), values_[node.out], node); }, node.op);
  }
  void add_loss(Result& result) const {
    const Node& loss = program_.nodes.back();
    const Tensor& logits = in(loss);
    for (int r = 0; r < logits.shape.rows; ++r) {
      const double* row = logits.row(r);
      result.loss += values_[loss.out].values[r];
      result.correct += std::max_element(row, row + logits.width()) - row == target(r);
    }
  }
  void backward(int n, Result& result) {
    node_ = n;
    const Node& node = program_.nodes[n];
    std::visit(
        [&](const auto& op) {
          backward(op, in(node), values_[node.out], gradients_[node.out], gradients_[node.in[0]],
                   result.gradient, node);
        },
        node.op);
  }

  Tensor& value(Value number) { return values_[number]; }
  Tensor& gradient(Value number) { return gradients_[number]; }

 private:
  const Tensor& in(const Node& node) const { return values_[node.in[0]]; }
  // As a product of matrices sees it.
  double factor(double value) const { return program_.bf16 ? to_bf16(value) : value; }
  int target(int row) const {
    return microbatch_.targets[static_cast<std::size_t>(number_) * program_.sample.targets + row];
  }
  std::size_t offset(std::size_t parameter) const { return program_.parameters[parameter].offset; }

  // Calls visit(o, y, x, c, row, column, weight) for each product of a convolution.
  template <typename Visit>
  static void each_product(const Conv2d& l, const SampleShape& in, const SampleShape& out,
                           const Visit& visit) {
    for (int o = 0; o < l.out_channels; ++o)
      for (int y = 0; y < out.height; ++y)
        for (int x = 0; x < out.width; ++x)
          for (int c = 0; c < l.in_channels; ++c)
            each_in_window(l, in, y, x, [&](int row, int column, int tap) {
              visit(o, y, x, c, row, column,
                    (static_cast<std::size_t>(o) * l.in_channels + c) * l.kernel * l.kernel + tap);
            });
  }
  // Calls visit(row, column, number in the window) for what of window (y, x) lies in the image.
  template <typename Visit>
  static void each_in_window(const auto& l, const SampleShape& in, int y, int x, const Visit& visit) {
    for (int tap = 0; tap < l.kernel * l.kernel; ++tap) {
      const int row = y * l.stride - l.padding + tap / l.kernel;
      const int column = x * l.stride - l.padding + tap % l.kernel;
      if (row >= 0 && row < in.height && column >= 0 && column < in.width) visit(row, column, tap);
    }
  }

  void forward(const Conv2d& l, const Tensor& in, Tensor& out, const Node&) {
    const std::size_t pixels = out.values.size() / l.out_channels;
    for (std::size_t i = 0; i < out.values.size(); ++i)
      out.values[i] = l.bias ? parameters_[offset(*l.bias) + i / pixels] : 0;
    each_product(l, in.shape.row, out.shape.row,
                 [&](int o, int y, int x, int c, int row, int column, std::size_t tap) {
                   out.at(o, y, x) +=
                       factor(parameters_[offset(l.weight) + tap]) * factor(in.at(c, row, column));
                 });
  }
  void backward(const Conv2d& l, const Tensor& in, const Tensor&, const Tensor& d, Tensor& d_in,
                Values& gradient, const Node&) {
    const std::size_t pixels = d.values.size() / l.out_channels;
    for (std::size_t i = 0; l.bias && i < d.values.size(); ++i)
      gradient[offset(*l.bias) + i / pixels] += d.values[i];
    each_product(l, in.shape.row, d.shape.row,
                 [&](int o, int y, int x, int c, int row, int column, std::size_t tap) {
                   const std::size_t w = offset(l.weight) + tap;
                   gradient[w] += factor(d.at(o, y, x)) * factor(in.at(c, row, column));
                   d_in.at(c, row, column) += factor(parameters_[w]) * factor(d.at(o, y, x));
                 });
  }

  void forward(const Relu&, const Tensor& in, Tensor& out, const Node&) {
    for (std::size_t i = 0; i < in.values.size(); ++i) out.values[i] = std::max(in.values[i], 0.0);
  }
  void backward(const Relu&, const Tensor& in, const Tensor&, const Tensor& d, Tensor& d_in, Values&,
                const Node&) {
    for (std::size_t i = 0; i < d.values.size(); ++i) d_in.values[i] += d.values[i] * (in.values[i] > 0);
  }

  static double gelu_argument(double x) {
    return std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  }
  void forward(const Gelu&, const Tensor& in, Tensor& out, const Node&) {
    for (std::size_t i = 0; i < in.values.size(); ++i)
      out.values[i] = 0.5 * in.values[i] * (1 + std::tanh(gelu_argument(in.values[i])));
  }
  void backward(const Gelu&, const Tensor& in, const Tensor&, const Tensor& d, Tensor& d_in, Values&,
                const Node&) {
    for (std::size_t i = 0; i < d.values.size(); ++i) {
      const double x = in.values[i], tanh = std::tanh(gelu_argument(x));
      const double slope = std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * x * x);
      d_in.values[i] += d.values[i] * (0.5 * (1 + tanh) + 0.5 * x * (1 - tanh * tanh) * slope);
    }
  }

  struct Position {
    int y, x;
  };
  static Position largest(const MaxPool2d& l, const Tensor& in, int c, int y, int x) {
    Position best{-1, -1};
    each_in_window(l, in.shape.row, y, x, [&](int row, int column, int) {
      if (best.y < 0 || in.at(c, row, column) > in.at(c, best.y, best.x)) best = {row, column};
    });
    return best;
  }
  template <typename Visit>
  static void each_pixel(const SampleShape& shape, const Visit& visit) {
    for (int c = 0; c < shape.channels; ++c)
      for (int y = 0; y < shape.height; ++y)
        for (int x = 0; x < shape.width; ++x) visit(c, y, x);
  }
  void forward(const MaxPool2d& l, const Tensor& in, Tensor& out, const Node&) {
    each_pixel(out.shape.row, [&](int c, int y, int x) {
      const Position best = largest(l, in, c, y, x);
      out.at(c, y, x) = in.at(c, best.y, best.x);
    });
  }
  void backward(const MaxPool2d& l, const Tensor& in, const Tensor&, const Tensor& d, Tensor& d_in, Values&,
                const Node&) {
    each_pixel(d.shape.row, [&](int c, int y, int x) {
      const Position best = largest(l, in, c, y, x);
      d_in.at(c, best.y, best.x) += d.at(c, y, x);
    });
  }

  static double pixels(const SampleShape& image) { return static_cast<double>(image.height) * image.width; }
  void forward(const GlobalAveragePool&, const Tensor& in, Tensor& out, const Node&) {
    each_pixel(in.shape.row,
               [&](int c, int y, int x) { out.at(c, 0, 0) += in.at(c, y, x) / pixels(in.shape.row); });
  }
  void backward(const GlobalAveragePool&, const Tensor& in, const Tensor&, const Tensor& d, Tensor& d_in,
                Values&, const Node&) {
    each_pixel(in.shape.row,
               [&](int c, int y, int x) { d_in.at(c, y, x) += d.at(c, 0, 0) / pixels(in.shape.row); });
  }

  void forward(const Flatten&, const Tensor& in, Tensor& out, const Node&) { out.values = in.values; }
  void backward(const Flatten&, const Tensor&, const Tensor&, const Tensor& d, Tensor& d_in, Values&,
                const Node&) {
    for (std::size_t i = 0; i < d.values.size(); ++i) d_in.values[i] += d.values[i];
  }

  std::size_t weight_at(const Linear& l, int o, int i) const {
    return offset(l.weight) + (l.in_first ? static_cast<std::size_t>(i) * l.out_features + o
                                          : static_cast<std::size_t>(o) * l.in_features + i);
  }
  void forward(const Linear& l, const Tensor& in, Tensor& out, const Node&) {
    for (int r = 0; r < in.shape.rows; ++r)
      for (int o = 0; o < l.out_features; ++o) {
        double sum = l.bias ? parameters_[offset(*l.bias) + o] : 0;
        for (int i = 0; i < l.in_features; ++i)
          sum += factor(parameters_[weight_at(l, o, i)]) * factor(in.row(r)[i]);
        out.row(r)[o] = sum;
      }
  }
  void backward(const Linear& l, const Tensor& in, const Tensor&, const Tensor& d, Tensor& d_in,
                Values& gradient, const Node&) {
    for (int r = 0; r < in.shape.rows; ++r)
      for (int o = 0; o < l.out_features; ++o) {
        if (l.bias) gradient[offset(*l.bias) + o] += d.row(r)[o];
        for (int i = 0; i < l.in_features; ++i) {
          const std::size_t w = weight_at(l, o, i);
          gradient[w] += factor(d.row(r)[o]) * factor(in.row(r)[i]);
          d_in.row(r)[i] += factor(parameters_[w]) * factor(d.row(r)[o]);
        }
      }
  }

  struct Moments {
    double mean, scale;  // 1 / standard deviation
  };
  static Moments moments(const LayerNorm& l, const double* row) {
    double mean = 0, square = 0;
    for (int i = 0; i < l.width; ++i) mean += row[i] / l.width;
    for (int i = 0; i < l.width; ++i) square += (row[i] - mean) * (row[i] - mean) / l.width;
    return {mean, 1 / std::sqrt(square + static_cast<double>(l.epsilon))};
  }
  void forward(const LayerNorm& l, const Tensor& in, Tensor& out, const Node&) {
    for (int r = 0; r < in.shape.rows; ++r) {
      const Moments m = moments(l, in.row(r));
      for (int i = 0; i < l.width; ++i)
        out.row(r)[i] = (in.row(r)[i] - m.mean) * m.scale * parameters_[offset(l.weight) + i] +
                        parameters_[offset(l.bias) + i];
    }
  }
  void backward(const LayerNorm& l, const Tensor& in, const Tensor&, const Tensor& d, Tensor& d_in,
                Values& gradient, const Node&) {
    for (int r = 0; r < in.shape.rows; ++r) {
      const Moments m = moments(l, in.row(r));
      double mean_d = 0, mean_dx = 0;
      for (int i = 0; i < l.width; ++i) {
        const double x = (in.row(r)[i] - m.mean) * m.scale;
        const double dx = d.row(r)[i] * parameters_[offset(l.weight) + i];
        gradient[offset(l.weight) + i] += d.row(r)[i] * x;
        gradient[offset(l.bias) + i] += d.row(r)[i];
        mean_d += dx / l.width, mean_dx += dx * x / l.width;
      }
      for (int i = 0; i < l.width; ++i) {
        const double x = (in.row(r)[i] - m.mean) * m.scale;
        d_in.row(r)[i] += m.scale * (d.row(r)[i] * parameters_[offset(l.weight) + i] - mean_d - x * mean_dx);
      }
    }
  }

  // BatchNorms of all samples.
  void forward(const BatchNorm&, const Tensor&, Tensor&, const Node&) {}
  void backward(const BatchNorm&, const Tensor&, const Tensor&, const Tensor&, Tensor&, Values&,
                const Node&) {}

  static std::size_t token(const Tensor& in, int r) { return static_cast<std::size_t>(in.values[r]); }
  void forward(const Embedding& l, const Tensor& in, Tensor& out, const Node&) {
    for (int r = 0; r < out.shape.rows; ++r)
      for (int i = 0; i < l.width; ++i)
        out.row(r)[i] = parameters_[offset(l.weight) + token(in, r) * l.width + i];
  }
  void backward(const Embedding& l, const Tensor& in, const Tensor&, const Tensor& d, Tensor&,
                Values& gradient, const Node&) {
    for (int r = 0; r < d.shape.rows; ++r)
      for (int i = 0; i < l.width; ++i)
        gradient[offset(l.weight) + token(in, r) * l.width + i] += d.row(r)[i];
  }

  void forward(const AddPositions& l, const Tensor& in, Tensor& out, const Node&) {
    for (std::size_t i = 0; i < in.values.size(); ++i)
      out.values[i] = in.values[i] + parameters_[offset(l.weight) + i];
  }
  void backward(const AddPositions& l, const Tensor&, const Tensor&, const Tensor& d, Tensor& d_in,
                Values& gradient, const Node&) {
    for (std::size_t i = 0; i < d.values.size(); ++i) {
      gradient[offset(l.weight) + i] += d.values[i];
      d_in.values[i] += d.values[i];
    }
  }

  // The attention of row r of a head to rows 0..r.
  Values attention_of(const Attention& l, const Tensor& in, int head, int r) const {
    const int size = l.width / l.heads;
    const double* query = in.row(r) + head * size;
    Values weights(r + 1);
    for (int t = 0; t <= r; ++t) {
      const double* key = in.row(t) + l.width + head * size;
      for (int i = 0; i < size; ++i) weights[t] += factor(query[i]) * factor(key[i]) / std::sqrt(size);
    }
    const double largest = *std::max_element(weights.begin(), weights.end());
    double sum = 0;
    for (double& weight : weights) sum += weight = std::exp(weight - largest);
    for (double& weight : weights) weight /= sum;
    return weights;
  }
  void forward(const Attention& l, const Tensor& in, Tensor& out, const Node&) {
    const int size = l.width / l.heads;
    for (int head = 0; head < l.heads; ++head)
      for (int r = 0; r < in.shape.rows; ++r) {
        const Values weights = attention_of(l, in, head, r);
        for (int i = 0; i < size; ++i) {
          double sum = 0;
          for (int t = 0; t <= r; ++t)
            sum += factor(weights[t]) * factor(in.row(t)[2 * l.width + head * size + i]);
          out.row(r)[head * size + i] = sum;
        }
      }
  }
  void backward(const Attention& l, const Tensor& in, const Tensor&, const Tensor& d, Tensor& d_in, Values&,
                const Node&) {
    const int size = l.width / l.heads;
    for (int head = 0; head < l.heads; ++head)
      for (int r = 0; r < in.shape.rows; ++r) {
        const Values weights = attention_of(l, in, head, r);
        const double* d_out = d.row(r) + head * size;
        Values d_weights(r + 1);
        double mean = 0;
        for (int t = 0; t <= r; ++t) {
          for (int i = 0; i < size; ++i) {
            d_weights[t] += factor(d_out[i]) * factor(in.row(t)[2 * l.width + head * size + i]);
            d_in.row(t)[2 * l.width + head * size + i] += factor(weights[t]) * factor(d_out[i]);
          }
          mean += weights[t] * d_weights[t];
        }
        for (int t = 0; t <= r; ++t) {
          const double d_score = factor(weights[t] * (d_weights[t] - mean) / std::sqrt(size));
          for (int i = 0; i < size; ++i) {
            d_in.row(r)[head * size + i] += d_score * factor(in.row(t)[l.width + head * size + i]);
            d_in.row(t)[l.width + head * size + i] += d_score * factor(in.row(r)[head * size + i]);
          }
        }
      }
  }

  double dropout_factor(const Dropout& l, std::size_t index) const {
    if (!training_) return 1;
    const std::size_t first = number_ * program_.values[program_.nodes[node_].out].size();
    return keeps(dropout_stream(microbatch_.key, node_), first + index, l.probability)
               ? 1 / (1 - static_cast<double>(l.probability))
               : 0;
  }
  void forward(const Dropout& l, const Tensor& in, Tensor& out, const Node&) {
    for (std::size_t i = 0; i < in.values.size(); ++i) out.values[i] = in.values[i] * dropout_factor(l, i);
  }
  void backward(const Dropout& l, const Tensor&, const Tensor&, const Tensor& d, Tensor& d_in, Values&,
                const Node&) {
    for (std::size_t i = 0; i < d.values.size(); ++i) d_in.values[i] += d.values[i] * dropout_factor(l, i);
  }

  void forward(const Add&, const Tensor& in, Tensor& out, const Node& node) {
    for (std::size_t i = 0; i < in.values.size(); ++i)
      out.values[i] = in.values[i] + values_[node.in[1]].values[i];
  }
  void backward(const Add&, const Tensor&, const Tensor&, const Tensor& d, Tensor& d_in, Values&,
                const Node& node) {
    for (std::size_t i = 0; i < d.values.size(); ++i) {
      d_in.values[i] += d.values[i];
      gradients_[node.in[1]].values[i] += d.values[i];
    }
  }

  static Values log_softmax(const double* row, std::size_t width) {
    const double largest = *std::max_element(row, row + width);
    double sum = 0;
    for (std::size_t i = 0; i < width; ++i) sum += std::exp(row[i] - largest);
    Values out(row, row + width);
    for (double& value : out) value -= largest + std::log(sum);
    return out;
  }
  void forward(const LogSoftmaxNll&, const Tensor& in, Tensor& out, const Node&) {
    for (int r = 0; r < in.shape.rows; ++r) out.values[r] = -log_softmax(in.row(r), in.width())[target(r)];
  }
  void backward(const LogSoftmaxNll&, const Tensor& in, const Tensor&, const Tensor&, Tensor& d_in, Values&,
                const Node&) {
    for (int r = 0; r < in.shape.rows; ++r) {
      const Values log = log_softmax(in.row(r), in.width());
      for (std::size_t i = 0; i < log.size(); ++i) d_in.row(r)[i] += std::exp(log[i]);
      d_in.row(r)[target(r)] -= 1;
    }
  }

  const Program& program_;
  std::span<const double> parameters_;
  const Microbatch& microbatch_;
  const int number_;  // of the sample in the microbatch
  const bool training_;
  std::vector<Tensor> values_, gradients_;
  int node_ = 0;  // in hand
};

// A batch norm, which sees all samples at once.
class BatchNorms {
 public:
  BatchNorms(const Program& program, std::span<const double> parameters, std::vector<Sample>& samples,
             bool training)
      : program_(program), parameters_(parameters), samples_(samples), training_(training) {}

  void forward(const BatchNorm& l, const Node& node) {
    for (int c = 0; c < l.channels; ++c) {
      const Moments m = moments(l, node, c);
      each(node, c, [&](Sample& sample, std::size_t i) {
        sample.value(node.out).values[i] =
            (sample.value(node.in[0]).values[i] - m.mean) / m.deviation * parameter(l.weight, c) +
            parameter(l.bias, c);
      });
    }
  }

  void backward(const BatchNorm& l, const Node& node, Values& gradient) {
    for (int c = 0; c < l.channels; ++c) {
      const Moments m = moments(l, node, c);
      const double pixels = m.count / static_cast<double>(samples_.size());
      double sum = 0, sum_x = 0;
      each(node, c, [&](Sample& sample, std::size_t i) {
        const double d = sample.gradient(node.out).values[i], x = sample.value(node.in[0]).values[i];
        sum += d, sum_x += d * (x - m.mean) / m.deviation;
        gradient[at(l.mean, c)] += (x - parameter(l.mean, c)) / pixels;
        gradient[at(l.variance, c)] += std::pow(x - parameter(l.mean, c), 2) / pixels;
      });
      gradient[at(l.bias, c)] += sum, gradient[at(l.weight, c)] += sum_x;
      each(node, c, [&](Sample& sample, std::size_t i) {
        const double x = (sample.value(node.in[0]).values[i] - m.mean) / m.deviation;
        sample.gradient(node.in[0]).values[i] +=
            parameter(l.weight, c) / m.deviation *
            (sample.gradient(node.out).values[i] - sum / m.count - x * sum_x / m.count);
      });
    }
  }

 private:
  struct Moments {
    double mean, deviation, count;
  };
  Moments moments(const BatchNorm& l, const Node& node, int c) {
    double count = 0, mean = 0, square = 0;
    each(node, c, [&](Sample&, std::size_t) { ++count; });
    if (!training_) return {parameter(l.mean, c), std::sqrt(parameter(l.variance, c) + l.epsilon), count};
    each(node, c, [&](Sample& sample, std::size_t i) { mean += sample.value(node.in[0]).values[i] / count; });
    each(node, c, [&](Sample& sample, std::size_t i) {
      square += std::pow(sample.value(node.in[0]).values[i] - mean, 2) / count;
    });
    return {mean, std::sqrt(square + l.epsilon), count};
  }
  // Calls visit(sample, offset) for all values of a channel.
  template <typename Visit>
  void each(const Node& node, int c, const Visit& visit) {
    const SampleShape& shape = program_.values[node.in[0]].row;
    const std::size_t pixels = static_cast<std::size_t>(shape.height) * shape.width;
    for (Sample& sample : samples_)
      for (std::size_t i = 0; i < pixels; ++i) visit(sample, c * pixels + i);
  }
  std::size_t at(std::size_t index, int c) const { return program_.parameters[index].offset + c; }
  double parameter(std::size_t index, int c) const { return parameters_[at(index, c)]; }

  const Program& program_;
  std::span<const double> parameters_;
  std::vector<Sample>& samples_;
  const bool training_;
};

}  // namespace

double to_bf16(double value) {
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);  // 0.5 to 1: bf16 has 8 bits of it
  return std::ldexp(std::nearbyint(std::ldexp(fraction, 8)), exponent - 8);
}

Result run(const Program& program, std::span<const double> parameters, const Microbatch& microbatch,
           bool training) {
  Result result;
  result.gradient.assign(program.size, 0.0);
  std::vector<Sample> samples;
  for (int n = 0; n < microbatch.samples; ++n)
    samples.emplace_back(program, parameters, microbatch, n, training);
  BatchNorms norms(program, parameters, samples, training);
  const int nodes = static_cast<int>(program.nodes.size());
  for (int n = 0; n < nodes; ++n) {
    const Node& node = program.nodes[n];
    if (const auto* const norm = std::get_if<BatchNorm>(&node.op)) norms.forward(*norm, node);
    for (Sample& sample : samples) sample.forward(n);
  }
  for (const Sample& sample : samples) sample.add_loss(result);
  for (int n = nodes; n-- > 0;) {
    const Node& node = program.nodes[n];
    if (const auto* const norm = std::get_if<BatchNorm>(&node.op))
      norms.backward(*norm, node, result.gradient);
    for (Sample& sample : samples) sample.backward(n, result);
  }
  return result;
}

}  // namespace dtrun::worker::reference
