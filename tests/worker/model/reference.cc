// One sample at a time, one product at a time; speed does not matter here.
#include "tests/worker/model/reference.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace dtrun::worker::reference {
namespace {

using Values = std::vector<double>;

// One sample's activation: [channels][height][width].
struct Image {
  SampleShape shape;
  Values values;
  explicit Image(SampleShape s) : shape(s), values(s.size()) {}
  double& at(int c, int y, int x) {
    return values[(static_cast<std::size_t>(c) * shape.height + y) * shape.width + x];
  }
  double at(int c, int y, int x) const { return const_cast<Image*>(this)->at(c, y, x); }
};

// Runs one sample forward, keeping the input of every layer, then backward.
class Sample {
 public:
  Sample(const Network& network, std::span<const double> parameters)
      : network_(network), parameters_(parameters) {}

  void run(std::span<const float> x, std::int32_t label, Result& result) {
    Image image(network_.input);
    std::copy(x.begin(), x.end(), image.values.begin());
    for (const Layer& layer : network_.layers) {
      inputs_.push_back(image);
      std::visit([&](const auto& l) { image = forward(l, inputs_.back()); }, layer);
    }
    label_ = label;
    result.loss -= image.values[label];
    const Values& logits = inputs_.back().values;
    result.correct += std::max_element(logits.begin(), logits.end()) - logits.begin() == label;
    Image gradient(image.shape);
    for (std::size_t i = network_.layers.size(); i-- > 0;)
      std::visit([&](const auto& l) { gradient = backward(l, inputs_[i], gradient, result.gradient); },
                 network_.layers[i]);
  }

 private:
  std::size_t offset(std::size_t parameter) const { return network_.parameters[parameter].offset; }
  static std::size_t tap(const Conv2d& l, int o, int c, int ky, int kx) {
    return ((static_cast<std::size_t>(o) * l.in_channels + c) * l.kernel + ky) * l.kernel + kx;
  }

  // Calls visit(o, y, x, c, ky, kx) for each product of a convolution.
  template <typename Visit>
  static void each_product(const Conv2d& l, const SampleShape& in, const Visit& visit) {
    for (int o = 0; o < l.out_channels; ++o)
      for (int y = 0; y + l.kernel <= in.height; ++y)
        for (int x = 0; x + l.kernel <= in.width; ++x)
          for (int c = 0; c < l.in_channels; ++c)
            for (int ky = 0; ky < l.kernel; ++ky)
              for (int kx = 0; kx < l.kernel; ++kx) visit(o, y, x, c, ky, kx);
  }

  Image forward(const Conv2d& l, const Image& in) {
    Image out({l.out_channels, in.shape.height - l.kernel + 1, in.shape.width - l.kernel + 1});
    const std::size_t pixels = out.values.size() / l.out_channels;
    for (std::size_t i = 0; i < out.values.size(); ++i)
      out.values[i] = parameters_[offset(l.bias) + i / pixels];
    each_product(l, in.shape, [&](int o, int y, int x, int c, int ky, int kx) {
      out.at(o, y, x) += parameters_[offset(l.weight) + tap(l, o, c, ky, kx)] * in.at(c, y + ky, x + kx);
    });
    return out;
  }
  Image backward(const Conv2d& l, const Image& in, const Image& d, Values& gradient) {
    Image d_in(in.shape);
    const std::size_t pixels = d.values.size() / l.out_channels;
    for (std::size_t i = 0; i < d.values.size(); ++i) gradient[offset(l.bias) + i / pixels] += d.values[i];
    each_product(l, in.shape, [&](int o, int y, int x, int c, int ky, int kx) {
      const std::size_t w = offset(l.weight) + tap(l, o, c, ky, kx);
      gradient[w] += d.at(o, y, x) * in.at(c, y + ky, x + kx);
      d_in.at(c, y + ky, x + kx) += parameters_[w] * d.at(o, y, x);
    });
    return d_in;
  }

  Image forward(const Relu&, Image in) {
    for (double& value : in.values) value = std::max(value, 0.0);
    return in;
  }
  Image backward(const Relu&, const Image& in, Image d, Values&) {
    for (std::size_t i = 0; i < d.values.size(); ++i) d.values[i] *= in.values[i] > 0;
    return d;
  }

  struct Position {
    int y, x;
  };
  static Position largest(const MaxPool2d& l, const Image& in, int c, int y, int x) {
    Position best{y * l.kernel, x * l.kernel};
    for (int ky = 0; ky < l.kernel; ++ky)
      for (int kx = 0; kx < l.kernel; ++kx)
        if (in.at(c, y * l.kernel + ky, x * l.kernel + kx) > in.at(c, best.y, best.x))
          best = {y * l.kernel + ky, x * l.kernel + kx};
    return best;
  }
  Image forward(const MaxPool2d& l, const Image& in) {
    Image out({in.shape.channels, in.shape.height / l.kernel, in.shape.width / l.kernel});
    for (int c = 0; c < out.shape.channels; ++c)
      for (int y = 0; y < out.shape.height; ++y)
        for (int x = 0; x < out.shape.width; ++x) {
          const Position best = largest(l, in, c, y, x);
          out.at(c, y, x) = in.at(c, best.y, best.x);
        }
    return out;
  }
  Image backward(const MaxPool2d& l, const Image& in, const Image& d, Values&) {
    Image d_in(in.shape);
    for (int c = 0; c < d.shape.channels; ++c)
      for (int y = 0; y < d.shape.height; ++y)
        for (int x = 0; x < d.shape.width; ++x) {
          const Position best = largest(l, in, c, y, x);
          d_in.at(c, best.y, best.x) += d.at(c, y, x);
        }
    return d_in;
  }

  Image forward(const Flatten&, const Image& in) {
    Image out({static_cast<int>(in.shape.size()), 1, 1});
    out.values = in.values;
    return out;
  }
  Image backward(const Flatten&, const Image& in, const Image& d, Values&) {
    Image d_in(in.shape);
    d_in.values = d.values;
    return d_in;
  }

  Image forward(const Linear& l, const Image& in) {
    Image out({l.out_features, 1, 1});
    for (int o = 0; o < l.out_features; ++o) {
      out.values[o] = parameters_[offset(l.bias) + o];
      for (int i = 0; i < l.in_features; ++i)
        out.values[o] +=
            parameters_[offset(l.weight) + static_cast<std::size_t>(o) * l.in_features + i] * in.values[i];
    }
    return out;
  }
  Image backward(const Linear& l, const Image& in, const Image& d, Values& gradient) {
    Image d_in(in.shape);
    for (int o = 0; o < l.out_features; ++o) {
      gradient[offset(l.bias) + o] += d.values[o];
      for (int i = 0; i < l.in_features; ++i) {
        const std::size_t w = offset(l.weight) + static_cast<std::size_t>(o) * l.in_features + i;
        gradient[w] += d.values[o] * in.values[i];
        d_in.values[i] += parameters_[w] * d.values[o];
      }
    }
    return d_in;
  }

  Image forward(const LogSoftmaxNll&, Image in) {
    const double largest = *std::max_element(in.values.begin(), in.values.end());
    double sum = 0;
    for (const double value : in.values) sum += std::exp(value - largest);
    for (double& value : in.values) value -= largest + std::log(sum);
    return in;
  }
  Image backward(const LogSoftmaxNll& l, const Image& in, const Image&, Values&) {
    Image d_in = forward(l, in);
    for (double& value : d_in.values) value = std::exp(value);
    d_in.values[label_] -= 1;
    return d_in;
  }

  const Network& network_;
  std::span<const double> parameters_;
  std::vector<Image> inputs_;  // of each layer
  std::int32_t label_ = 0;
};

}  // namespace

Result run(const Network& network, std::span<const double> parameters, std::span<const float> x,
           std::span<const std::int32_t> labels) {
  Result result;
  result.gradient.assign(network.size, 0.0);
  for (std::size_t n = 0; n < labels.size(); ++n)
    Sample(network, parameters)
        .run(x.subspan(n * network.input.size(), network.input.size()), labels[n], result);
  return result;
}

}  // namespace dtrun::worker::reference
