// A model as a list of layers: model.type "layers", and the built-in ones but gpt2.
#include "worker/config/layers.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "proto/json/json.h"
#include "worker/base/error.h"
#include "worker/model/builder.h"
#include "worker/model/models.h"

namespace dtrun::worker {
namespace {

class LayerBuilder {
 public:
  // `pointer`: of the list in the config; empty: the layers are known by their names.
  LayerBuilder(std::vector<Layer> layers, std::string pointer, const SampleSpec& sample)
      : layers_(std::move(layers)), pointer_(std::move(pointer)), sample_(sample), net_(sample) {}

  Program build() {
    for (; at_ < layers_.size(); ++at_) {
      values_.push_back(make(layers_[at_]));
      read_.push_back(false);
    }
    check_end();
    return net_.finish(values_.back());
  }

  // With the arguments that followed from the data.
  const std::vector<Layer>& layers() const { return layers_; }

 private:
  Value make(Layer& layer) {
    const Value in = layer.input ? output_of(*layer.input) : output_before();
    check_input(layer, in);
    const Value out = push(layer, in);
    flat_.resize(out + 1, layer.type == LayerType::kFlatten || flat_[in]);
    return out;
  }

  void check_input(const Layer& layer, Value in) const {
    const SampleShape& shape = net_.row(in);
    const bool windows = layer.type == LayerType::kConv2d || layer.type == LayerType::kMaxPool2d;
    const bool rows = layer.type == LayerType::kLinear || layer.type == LayerType::kLayerNorm ||
                      layer.type == LayerType::kBatchNorm1d;
    if (windows || layer.type == LayerType::kAdaptiveAvgPool2d || layer.type == LayerType::kBatchNorm2d)
      require(!flat_[in], "takes images, and a row of " + std::to_string(shape.channels) + " reaches it");
    if (windows) check_size(layer, shape);
    if (rows)
      require(flat_[in], "takes rows, and " + shape_text(shape) + " reaches it: put a Flatten before it");
    require(!layer.in || *layer.in == shape.channels, "is said to take " +
                                                          std::to_string(layer.in.value_or(0)) + ", and " +
                                                          shape_text(shape) + " reaches it");
  }

  Value push(Layer& layer, Value in) {
    layer.in = net_.row(in).channels;
    if (!layer.out_features) layer.out_features = sample_.classes;
    switch (layer.type) {
      case LayerType::kConv2d:
        return net_.conv(in, layer.name, layer.out_channels, layer.kernel_size, layer.stride.value_or(1),
                         layer.padding, layer.bias);
      case LayerType::kMaxPool2d:
        return net_.max_pool(in, layer.kernel_size, layer.stride.value_or(layer.kernel_size), layer.padding);
      case LayerType::kAdaptiveAvgPool2d:
        return net_.global_average_pool(in);
      case LayerType::kLinear:
        return net_.linear(in, layer.name, *layer.out_features, layer.bias);
      case LayerType::kLayerNorm:
        return net_.layer_norm(in, layer.name);
      case LayerType::kBatchNorm2d:
      case LayerType::kBatchNorm1d:
        return net_.batch_norm(in, layer.name, layer.type == LayerType::kBatchNorm2d, layer.eps,
                               layer.momentum);
      case LayerType::kReLU:
        return net_.relu(in);
      case LayerType::kGELU:
        return net_.gelu(in);
      case LayerType::kDropout:
        return net_.dropout(in, layer.p);
      case LayerType::kFlatten:
        return net_.flatten(in);
      case LayerType::kAdd:
        return add(in, output_of(layer.add));
    }
    throw WorkerError(kExitSoftware, "a layer of no known type");
  }

  Value add(Value left, Value right) {
    require(net_.row(left) == net_.row(right), "adds outputs of different shapes, " +
                                                   shape_text(net_.row(left)) + " and " +
                                                   shape_text(net_.row(right)));
    return net_.add(left, right);
  }

  Value output_before() {
    if (values_.empty()) return net_.input();
    read_.back() = true;
    return values_.back();
  }
  Value output_of(const std::string& name) {
    const auto found = std::ranges::find(layers_, name, &Layer::name) - layers_.begin();
    read_[found] = true;
    return values_[found];
  }

  void check_size(const Layer& layer, const SampleShape& shape) const {
    // As PyTorch: a window that lies in the padding alone has no largest value.
    require(layer.type != LayerType::kMaxPool2d || 2 * layer.padding <= layer.kernel_size,
            "has a padding of " + std::to_string(layer.padding) + ", more than half its kernel_size");
    const int least = std::max(1, layer.kernel_size - 2 * layer.padding);
    require(shape.channels >= 1 && shape.height >= least && shape.width >= least,
            "needs at least " + std::to_string(least) + "x" + std::to_string(least) + ", and " +
                shape_text(shape) + " reaches it, of samples of " + shape_text(sample_.shape) +
                "; choose other data, another model, or fewer or smaller layers");
  }

  // The loss reads the last layer, which makes the logits; all others are read by a layer.
  void check_end() {
    const SampleShape& logits = net_.row(values_.back());
    at_ = layers_.size() - 1;
    require(layers_.back().type == LayerType::kLinear,
            "is the last layer, which must be a Linear: it makes the logits");
    require(logits.channels == sample_.classes,
            "makes " + std::to_string(logits.channels) + " logits, and the data has " +
                std::to_string(sample_.classes) + " classes (leave out_features out to have as many)");
    read_.back() = true;
    for (at_ = 0; at_ < read_.size(); ++at_) require(read_[at_], "is read by no layer: leave it out");
  }

  // Else the layer at_ does not fit.
  void require(bool fits, const std::string& what) const {
    if (fits) return;
    const Layer& layer = layers_[at_];
    const std::string where = pointer_.empty() ? "layer " + layer.name : pointer_ + "/" + std::to_string(at_);
    throw WorkerError(kExitConfig,
                      "the data does not fit the model: " + where + ": " + name_of(layer.type) + " " + what);
  }

  std::vector<Layer> layers_;
  const std::string pointer_;
  const SampleSpec& sample_;
  ProgramBuilder net_;
  std::size_t at_ = 0;             // the layer that is looked at
  std::vector<Value> values_;      // of the layers so far
  std::vector<bool> flat_{false};  // of each value, whether it is a row and no image
  std::vector<bool> read_;         // whether another layer reads the value
};

}  // namespace

Program named_layers(const std::vector<Layer>& layers, const SampleSpec& sample) {
  return LayerBuilder(layers, "", sample).build();
}

Program layers(const ModelConfig& config, const SampleSpec& sample) {
  LayerBuilder builder(config.layers, "/model/layers", sample);
  Program program = builder.build();
  program.layers = json_text(json_of(builder.layers()));
  return program;
}

}  // namespace dtrun::worker
