// SGD and AdamW with PyTorch's formulas, one pass over the parameters each.
#include "worker/optim/optimizer.h"

#include <cmath>

#include "worker/base/error.h"

namespace dtrun::worker {
namespace {

class Sgd : public Optimizer {
 public:
  explicit Sgd(const TrainConfig& config)
      : momentum_(static_cast<float>(config.momentum)),
        weight_decay_(static_cast<float>(config.weight_decay)) {}

  std::vector<OptimizerSlot> zero_slots(std::size_t size) const override {
    if (momentum_ == 0) return {};
    return {{"momentum_buffer", std::vector<float>(size)}};
  }

  void apply(std::int64_t, double learning_rate, std::span<const float> gradient, std::span<float> parameters,
             std::span<OptimizerSlot> slots) const override {
    const float rate = static_cast<float>(learning_rate);
    if (slots.empty())
      apply_plain(rate, gradient.data(), parameters.data(), parameters.size());
    else
      apply_momentum(rate, gradient.data(), parameters.data(), slots[0].values.data(), parameters.size());
  }

 private:
  void apply_plain(float rate, const float* __restrict gradient, float* __restrict parameters,
                   std::size_t size) const {
    const float decay = weight_decay_;
    for (std::size_t i = 0; i < size; ++i) parameters[i] -= rate * (gradient[i] + decay * parameters[i]);
  }

  void apply_momentum(float rate, const float* __restrict gradient, float* __restrict parameters,
                      float* __restrict buffer, std::size_t size) const {
    const float decay = weight_decay_, momentum = momentum_;
    for (std::size_t i = 0; i < size; ++i) {
      buffer[i] = buffer[i] * momentum + (gradient[i] + decay * parameters[i]);
      parameters[i] -= rate * buffer[i];
    }
  }

  const float momentum_, weight_decay_;
};

class AdamW : public Optimizer {
 public:
  explicit AdamW(const TrainConfig& config)
      : beta1_(config.adam_beta1),
        beta2_(config.adam_beta2),
        epsilon_(config.adam_epsilon),
        weight_decay_(config.weight_decay) {}

  std::vector<OptimizerSlot> zero_slots(std::size_t size) const override {
    return {{"exp_avg", std::vector<float>(size)}, {"exp_avg_sq", std::vector<float>(size)}};
  }

  void apply(std::int64_t step, double learning_rate, std::span<const float> gradient,
             std::span<float> parameters, std::span<OptimizerSlot> slots) const override {
    const auto updates = static_cast<double>(step + 1);
    const Factors factors{
        .keep = static_cast<float>(1 - learning_rate * weight_decay_),
        .step_size = static_cast<float>(learning_rate / (1 - std::pow(beta1_, updates))),
        .root_correction = static_cast<float>(std::sqrt(1 - std::pow(beta2_, updates))),
    };
    apply(factors, gradient.data(), parameters.data(), slots[0].values.data(), slots[1].values.data(),
          parameters.size());
  }

 private:
  struct Factors {
    float keep, step_size, root_correction;
  };

  void apply(const Factors& f, const float* __restrict gradient, float* __restrict parameters,
             float* __restrict mean, float* __restrict mean_square, std::size_t size) const {
    const auto b1 = static_cast<float>(beta1_), b2 = static_cast<float>(beta2_);
    const auto rest1 = static_cast<float>(1 - beta1_), rest2 = static_cast<float>(1 - beta2_);
    const auto epsilon = static_cast<float>(epsilon_);
    for (std::size_t i = 0; i < size; ++i) {
      const float g = gradient[i];
      mean[i] = mean[i] * b1 + rest1 * g;
      mean_square[i] = mean_square[i] * b2 + rest2 * g * g;
      const float denominator = std::sqrt(mean_square[i]) / f.root_correction + epsilon;
      parameters[i] = parameters[i] * f.keep - f.step_size * (mean[i] / denominator);
    }
  }

  const double beta1_, beta2_, epsilon_, weight_decay_;
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const TrainConfig& config) {
  if (config.optim == "sgd") return std::make_unique<Sgd>(config);
  if (config.optim == "adamw") return std::make_unique<AdamW>(config);
  throw WorkerError(kExitConfig,
                    "/train/optim: \"" + config.optim + "\" is not an optimizer; known: \"sgd\", \"adamw\"");
}

}  // namespace dtrun::worker
