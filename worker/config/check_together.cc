#include "worker/config/check_together.h"

#include <algorithm>
#include <string>
#include <tuple>

#include "proto/json/json.h"
#include "worker/config/options.h"
#include "worker/config/strict_json.h"

namespace dtrun::worker {
namespace {

// " (allowed: a divisor, e.g. 32 or 64)": the nearest ones below and above.
std::string divisors_near(int wanted, int of) {
  int below = 1, above = of;
  for (int divisor = 1; divisor <= of; ++divisor) {
    if (of % divisor != 0) continue;
    if (divisor < wanted) below = divisor;
    if (divisor > wanted) {
      above = divisor;
      break;
    }
  }
  const std::string both = std::to_string(below) + (above != below ? " or " + std::to_string(above) : "");
  return " (allowed: a divisor, e.g. " + both + ")";
}

void check_schedule(const TrainConfig& train, Faults* faults) {
  const SchedulerType type = train.lr_scheduler_type;
  if (faults->at("/train/lr_scheduler_type")) return;
  const auto no_effect = [&](const std::string& name, const std::string& value) {
    if (faults->at("/train/" + name)) return;
    faults->add("/train/" + name, value +
                                      " has no effect with lr_scheduler_type \"constant\" (use "
                                      "\"constant_with_warmup\", \"linear\" or \"cosine\")");
  };
  if (type == SchedulerType::kConstant && train.warmup_steps > 0)
    no_effect("warmup_steps", std::to_string(train.warmup_steps));
  if (type == SchedulerType::kConstant && train.warmup_ratio > 0)
    no_effect("warmup_ratio", json_text(train.warmup_ratio));

  const SchedulerKwargs& kwargs = train.lr_scheduler_kwargs;
  const std::string place = "/train/lr_scheduler_kwargs";
  const auto given = [&](const char* name, const auto& field) {
    return field.has_value() || faults->at(place + "/" + name);
  };
  if (type == SchedulerType::kCosineWithMinLr) {
    const bool lr = given("min_lr", kwargs.min_lr), rate = given("min_lr_rate", kwargs.min_lr_rate);
    if (!lr && !rate) faults->add(place, "\"cosine_with_min_lr\" needs min_lr or min_lr_rate");
    if (lr && rate) faults->add(place, "min_lr and min_lr_rate are both given; keep one");
  }
  if (type == SchedulerType::kWarmupStableDecay && !given("num_decay_steps", kwargs.num_decay_steps))
    faults->add(place, "\"warmup_stable_decay\" needs num_decay_steps");
  const double lr_end = kwargs.lr_end.value_or(kDefaultLrEnd);
  if (type == SchedulerType::kPolynomial && !faults->at(place + "/lr_end") &&
      !faults->at("/train/learning_rate") && lr_end >= train.learning_rate) {
    faults->add(place + "/lr_end",
                json_text(lr_end) + " is not lower than learning_rate " + json_text(train.learning_rate));
  }
}

void check_shape_of_samples(const std::vector<int>& shape, Faults* faults) {
  constexpr std::int64_t kMostValues = 1 << 24;
  std::int64_t values = 1;
  for (const int side : shape) values = std::min(values * side, std::int64_t{1} << 40);
  if (shape.size() != 3) {
    faults->add("/data/shape",
                "has " + std::to_string(shape.size()) + " numbers, wanted 3: channels, height and width");
  } else if (values > kMostValues) {
    faults->add("/data/shape", "has " + std::to_string(values) + " values (allowed: at most " +
                                   std::to_string(kMostValues) + ")");
  }
}

void check_images(const DataConfig& data, Faults* faults) {
  if (data.image_size.size() != 2)
    return faults->add("/data/image_size", "has " + std::to_string(data.image_size.size()) +
                                               " numbers, wanted 2: height and width");
  const int longer = std::max(data.image_size[0], data.image_size[1]);
  if (data.resize > 0 && data.resize < longer)
    faults->add("/data/resize", std::to_string(data.resize) + " is smaller than image_size (allowed: " +
                                    std::to_string(longer) + " or more, or 0)");
  if (data.channels == 2) faults->add("/data/channels", "2 is not known (allowed: 1 or 3)");
}

// The conditions of transformers, which ensure that each model that may turn out the best has a checkpoint.
void check_best_model(const TrainConfig& train, Faults* faults) {
  for (const char* name : {"eval_strategy", "save_strategy", "eval_steps", "save_steps"})
    if (faults->at(std::string("/train/") + name)) return;
  const bool by_steps = train.eval_strategy == IntervalStrategy::kSteps;
  const bool evaluates =
      train.eval_strategy == IntervalStrategy::kEpoch || (by_steps && train.eval_steps > 0);
  if (train.early_stopping_patience > 0 && !evaluates) {
    faults->add("/train/early_stopping_patience",
                std::to_string(train.early_stopping_patience) +
                    " has no effect without evaluations (use eval_strategy \"steps\" with eval_steps, or "
                    "\"epoch\")");
  }
  if (!train.load_best_model_at_end) return;
  const std::string place = "/train/load_best_model_at_end";
  if (train.eval_strategy != train.save_strategy) {
    faults->add(place, "needs eval_strategy and save_strategy to be the same, found \"" +
                           name_of(train.eval_strategy) + "\" and \"" + name_of(train.save_strategy) + '"');
  } else if (!evaluates) {
    faults->add(place,
                "has no effect without evaluations (use eval_strategy and save_strategy \"steps\" with "
                "eval_steps and save_steps, or \"epoch\")");
  } else if (by_steps && (train.save_steps == 0 || train.save_steps % train.eval_steps != 0)) {
    const std::int64_t times = std::max<std::int64_t>(1, train.save_steps / train.eval_steps);
    faults->add("/train/save_steps", std::to_string(train.save_steps) + " is no multiple of eval_steps " +
                                         std::to_string(train.eval_steps) +
                                         ", as load_best_model_at_end needs it (allowed: e.g. " +
                                         std::to_string(times * train.eval_steps) + " or " +
                                         std::to_string((times + 1) * train.eval_steps) + ")");
  }
}

void check_distillation(const TrainConfig& train, Faults* faults) {
  if (train.distill_from || faults->at("/train/distill_from")) return;
  const TrainConfig usual;
  for (const auto& [name, value, unless] :
       {std::tuple{"distill_temperature", train.distill_temperature, usual.distill_temperature},
        std::tuple{"distill_alpha", train.distill_alpha, usual.distill_alpha}}) {
    const std::string place = std::string("/train/") + name;
    if (value != unless && !faults->at(place))
      faults->add(place, json_text(value) + " has no effect without distill_from, a teacher's directory");
  }
}

void check_local_replicas(const JobConfig& config, Faults* faults) {
  const TrainConfig& train = config.train;
  const std::string place = "/train/local_replicas";
  if (faults->at(place)) return;
  const std::string replicas = std::to_string(train.local_replicas);
  if (!train.has_local_replicas()) {
    const auto no_effect = [&](const char* name, auto value, decltype(value) unless) {
      const std::string own = std::string("/train/") + name;
      if (!faults->at(own) && value != unless)
        faults->add(own, json_text(value) + " has no effect with local_replicas 1 (use 2 or more)");
    };
    const TrainConfig usual;
    no_effect("sync_every", train.sync_every, usual.sync_every);
    no_effect("outer_learning_rate", train.outer_learning_rate, usual.outer_learning_rate);
    no_effect("outer_momentum", train.outer_momentum, usual.outer_momentum);
    return;
  }
  const int microbatches = train.global_batch_size / train.micro_batch_size;
  if (microbatches % train.local_replicas != 0)
    faults->add(place, replicas + " does not divide the " + std::to_string(microbatches) +
                           " microbatches of a step" + divisors_near(train.local_replicas, microbatches));
}

bool has_batch_norms(const ModelConfig& model) {
  const auto is_norm = [](const Layer& layer) {
    return layer.type == LayerType::kBatchNorm2d || layer.type == LayerType::kBatchNorm1d;
  };
  return model.type == ModelType::kResnet || std::ranges::any_of(model.layers, is_norm);
}

void check_batch_norm_group(const JobConfig& config, bool batches_known, Faults* faults) {
  const TrainConfig& train = config.train;
  const std::string place = "/train/batch_norm_group";
  if (!train.in_lock_step() || faults->at(place)) return;
  if (!faults->at("/model/type") && !faults->at("/model/layers") && !has_batch_norms(config.model))
    return faults->add(place,
                       std::to_string(train.batch_norm_group) +
                           " has no effect with a model without batch norms (use model.type \"resnet\" "
                           "or \"layers\" with some)");
  const int group = train.batch_norm_group, leaves = train.global_batch_size / train.micro_batch_size;
  if ((group & (group - 1)) != 0)
    faults->add(place, std::to_string(group) + " is no power of two (0: all microbatches of a step)");
  else if (batches_known && group > 0 && leaves % group != 0)
    faults->add(place, std::to_string(group) + " does not divide the " + std::to_string(leaves) +
                           " microbatches of a step (global_batch_size " +
                           std::to_string(train.global_batch_size) + " in microbatches of " +
                           std::to_string(train.micro_batch_size) + "; 0: all of them)");
  if (train.has_local_replicas() && !faults->at("/train/local_replicas"))
    faults->add(place, "needs local_replicas 1: replicas make their steps without waiting for each other");
}

}  // namespace

void check_together(const JobConfig& config, Faults* faults) {
  const TrainConfig& train = config.train;
  const bool batches_known =
      !faults->at("/train/global_batch_size") && !faults->at("/train/micro_batch_size");
  if (batches_known && train.global_batch_size % train.micro_batch_size != 0) {
    faults->add("/train/micro_batch_size",
                std::to_string(train.micro_batch_size) + " does not divide global_batch_size " +
                    std::to_string(train.global_batch_size) +
                    divisors_near(train.micro_batch_size, train.global_batch_size));
  }
  if (batches_known) check_local_replicas(config, faults);
  const ModelConfig& model = config.model;
  const bool is_convnet = model.type == ModelType::kConvnet && !faults->at("/model/type");
  if (model.type == ModelType::kGpt2 && !faults->at("/model/n_head") && !faults->at("/model/n_embd") &&
      model.n_embd % model.n_head != 0) {
    faults->add("/model/n_head", std::to_string(model.n_head) + " does not divide n_embd " +
                                     std::to_string(model.n_embd) +
                                     divisors_near(model.n_head, model.n_embd));
  }
  if (is_convnet && !faults->at("/model/channels") && model.channels.empty())
    faults->add("/model/channels", "is empty, wanted the channels of at least one convolution");
  const bool is_resnet =
      model.type == ModelType::kResnet && !faults->at("/model/depths") && !faults->at("/model/type");
  if (is_resnet && (model.depths.empty() || model.depths.size() > 8))
    faults->add("/model/depths", "has " + std::to_string(model.depths.size()) + " stages (allowed: 1 to 8)");
  check_schedule(train, faults);
  check_best_model(train, faults);
  if (train.decay_weights_only && !faults->at("/train/optim") && train.optim != OptimizerType::kSgd)
    faults->add("/train/decay_weights_only",
                "is for optim \"sgd\"; " + name_of(train.optim) + " always does so, leave it out");
  if (train.nesterov && !faults->at("/train/optim") && train.optim != OptimizerType::kSgd)
    faults->add("/train/nesterov", "has no effect with optim \"" + name_of(train.optim) + "\" (use \"sgd\")");
  else if (train.nesterov && !faults->at("/train/momentum") && train.momentum == 0)
    faults->add("/train/nesterov", "needs a momentum, which is 0");
  check_distillation(train, faults);
  if (train.ignore_mismatched_sizes && !train.init_from && !faults->at("/train/init_from"))
    faults->add("/train/ignore_mismatched_sizes", "true has no effect without init_from");
  check_batch_norm_group(config, batches_known && train.global_batch_size % train.micro_batch_size == 0,
                         faults);
  if (!faults->at("/data/shape")) check_shape_of_samples(config.data.shape, faults);
  const bool images_known = !faults->at("/data/image_size") && !faults->at("/data/resize");
  if (config.data.type == DataType::kImageFolder && images_known) check_images(config.data, faults);
}

std::string too_few_samples(const TrainConfig& train, std::int64_t samples) {
  if (!train.dataloader_drop_last || samples >= train.global_batch_size) return "";
  return "/train/dataloader_drop_last leaves nothing to train with: the data has " + std::to_string(samples) +
         " samples, fewer than global_batch_size " + std::to_string(train.global_batch_size);
}

}  // namespace dtrun::worker
