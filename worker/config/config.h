// The job's config.json: typed, checked, with every default filled in.
// Names are those of Hugging Face TrainingArguments wherever the meaning is the same. global_batch_size and
// micro_batch_size are part of the computation's meaning; the number of processes is not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/core/status.h"
#include "worker/config/choices.h"
#include "worker/config/layer.h"

namespace dtrun::worker {

// Fields that a type does not have keep these defaults.
struct ModelConfig {
  ModelType type = ModelType::kConvnet;
  std::vector<Layer> layers = {};                     // layers
  std::vector<int> channels{20, 20};                  // convnet: output channels of each convolution
  int kernel_size = 5;                                // convnet
  std::vector<int> hidden_sizes{512, 512};            // mlp
  ActivationType activation = ActivationType::kRelu;  // mlp
  int n_layer = 12, n_head = 12;                      // gpt2
  std::vector<int> depths{2, 2, 2, 2};                // resnet: blocks of each stage
  BlockType layer_type = BlockType::kBasic;           // resnet
  int embedding_size = 64;                            // resnet: channels of the first convolution
  StemType stem = StemType::kImagenet;                // resnet
  int n_embd = 768;                                   // gpt2
  int n_positions = 1024;                             // gpt2: longest sample, in tokens
  int vocab_size = 0;                                 // gpt2: at least the data's classes; 0: these
  double dropout = 0;                                 // mlp, gpt2
  bool gradient_checkpointing = false;                // gpt2
};

struct DataConfig {
  DataType type = DataType::kFashionMnist;
  std::string path;                           // file or directory; synthetic has none
  std::string files = "*";                    // text: pattern of names of a directory's files
  std::optional<std::string> tokenizer = {};  // tokens, text: a file or directory
  int sequence_length = 1024;                 // tokens, text: of a sample
  int vocab_size = 50257;                     // tokens
  double test_fraction = 0.1;                 // text, synthetic; tokens, csv, image_folder without a split
  int classes = 10;                           // idx, csv, synthetic
  std::vector<double> mean{0}, std{1};        // idx, image_folder: of values in 0..1; one, or of each channel
  std::vector<int> image_size{224, 224};      // image_folder: height and width
  int channels = 3;                           // image_folder: 3, or 1 for grey
  int resize = 0;                             // image_folder: the shorter side before the crop; 0: as it fits
  int random_crop_padding = 0;                // images: of RandomCrop; 0: none
  double random_horizontal_flip = 0;          // images: probability
  std::string label_column = "label";         // csv: name, or number from 1
  Delimiter delimiter = Delimiter::kComma;    // csv
  HeaderLine header = HeaderLine::kAuto;      // csv
  std::int64_t samples = 10000;               // synthetic: of both splits
  std::vector<int> shape{1, 28, 28};          // synthetic: channels, height, width
  std::uint64_t seed = 42;                    // synthetic, image_folder
};

// Arguments of the learning-rate schedules: each type has its own, and its own defaults for arguments that
// are not given.
struct SchedulerKwargs {
  std::optional<double> num_cycles;                               // all with cosine
  std::optional<double> min_lr, min_lr_rate;                      // cosine_with_min_lr: one of them
  std::optional<double> lr_end, power;                            // polynomial
  std::optional<std::int64_t> timescale;                          // inverse_sqrt
  std::optional<std::int64_t> num_decay_steps, num_stable_steps;  // warmup_stable_decay, also the fields
                                                                  // below
  std::optional<double> min_lr_ratio;
  std::optional<RampShape> warmup_type, decay_type;
};

inline constexpr double kDefaultLrEnd = 1e-7;

// Where a run that begins looks for its state.
struct ResumeFrom {
  enum class Kind : std::uint8_t { kNewest, kNone, kNamed };

  // "auto", "none", or a checkpoint's directory.
  explicit ResumeFrom(std::string written = "auto")
      : kind(written == "auto"   ? Kind::kNewest
             : written == "none" ? Kind::kNone
                                 : Kind::kNamed),
        text(std::move(written)) {}

  Kind kind;
  std::string text;  // as it is written: of kNamed the directory
};

struct TrainConfig {
  int num_train_epochs = 3;
  std::int64_t max_steps = -1;  // > 0 overrides num_train_epochs
  int global_batch_size = 128;  // samples per optimizer step
  int micro_batch_size = 16;    // divides global_batch_size; a leaf of the gradient sum
  int batch_norm_group = 1;     // microbatches that are normalised together: a power of two, or 0: all
  bool dataloader_drop_last = false;
  double label_smoothing_factor = 0;
  OptimizerType optim = OptimizerType::kSgd;
  double learning_rate = 0.01;
  double momentum = 0.9;                                             // sgd
  bool nesterov = false;                                             // sgd with momentum
  double adam_beta1 = 0.9, adam_beta2 = 0.999, adam_epsilon = 1e-8;  // adamw
  double weight_decay = 0.0;
  bool decay_weights_only = false;  // sgd
  double max_grad_norm = 0.0;       // 0: no clipping
  SchedulerType lr_scheduler_type = SchedulerType::kConstant;
  std::int64_t warmup_steps = 0;
  double warmup_ratio = 0;  // of the whole run; counts if warmup_steps is 0
  bool bf16 = false;        // matrix products of bf16, summed in fp32; mlp, gpt2
  std::uint64_t seed = 42;
  DivergenceAction on_divergence = DivergenceAction::kStop;
  std::int64_t verify_sync_steps = 0;  // 0: never
  bool allow_mixed_devices = false;    // ranks may differ in the last bits of their results
  bool allow_other_data = false;       // a checkpoint may be of a run with another number of samples
  int local_replicas = 1;              // divides the microbatches of a step
  std::int64_t sync_every = 32;        // steps between syncs of several local replicas
  double outer_learning_rate = 1, outer_momentum = 0;
  std::int64_t logging_steps = 50;
  ReportTo report_to = ReportTo::kNone;
  std::int64_t eval_steps = 500;  // 0: only at the end
  std::int64_t save_steps = 500;  // 0: only at the end
  int save_total_limit = 3;       // 0: keep all
  IntervalStrategy eval_strategy = IntervalStrategy::kSteps;
  IntervalStrategy save_strategy = IntervalStrategy::kSteps;
  bool load_best_model_at_end = false;
  BestMetric metric_for_best_model = BestMetric::kLoss;
  std::optional<bool> greater_is_better;  // default: by the metric
  int early_stopping_patience = 0;        // evaluations without improvement; 0: any number
  ResumeFrom resume_from_checkpoint;
  std::optional<std::string> init_from;        // initial parameters: a directory or a file
  bool ignore_mismatched_sizes = false;        // tensors of init_from that do not fit begin anew
  std::optional<Quantization> quantize_aware;  // matrix products read weights that were rounded to these
  // Knowledge distillation: the teacher's run, or a checkpoint of it.
  std::optional<std::string> distill_from;
  double distill_temperature = 2, distill_alpha = 0.5;
  SchedulerKwargs lr_scheduler_kwargs;

  // Microbatches wait for each other at batch norms.
  bool in_lock_step() const { return batch_norm_group != 1; }
  // Replicas train on their own between syncs.
  bool has_local_replicas() const { return local_replicas > 1; }
  std::int64_t steps_between_syncs() const { return has_local_replicas() ? sync_every : 1; }
};

struct RecoveryConfig {
  std::int64_t in_memory_checkpoint_steps = 0;  // 0: never
};

// Defaults of the command line's options; not part of the computation's meaning.
struct LaunchConfig {
  std::optional<std::string> nproc_per_node;  // "2", "auto", "cpu", "gpu"
  std::optional<std::string> nnodes;          // "2", "1:4"
  std::optional<int> max_restarts;
  std::optional<std::string> lanes;  // "1", "auto"
  std::optional<RecoveryMode> recovery;
  std::optional<std::string> log_dir;
};

struct JobConfig {
  std::string output_dir;
  DeviceType device = DeviceType::kAuto;
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  RecoveryConfig recovery;
  LaunchConfig launch;
};

// Longer than any real job's config; a longer text is refused.
inline constexpr std::size_t kLargestConfig = std::size_t{1} << 20;  // bytes

// Parses and checks `text`, after applying `overrides` ("train.max_steps=10"; the value is JSON, or a string
// where it does not parse as JSON). In paths "~/" is `home`; the canonical text has the home itself. A
// failure has EX_CONFIG and gives `source`, the JSON pointer, the value found, the allowed values, and the
// nearest name for an unknown key. All faults are listed, one a line.
Result<JobConfig> parse_config(std::string_view text, const std::string& source,
                               std::span<const std::string> overrides, const char* home = nullptr);

// Canonical text: all keys in a fixed order, defaults filled in, no `launch`. Equal configs give equal text;
// parse_config reads it back.
std::string to_canonical_json(const JobConfig& config);

// "/train/seed: 42 here, 43 there" for the first difference between two canonical texts; empty if equal.
std::string first_difference(const std::string& here, const std::string& there);
// All differences between two canonical texts, separated by "; ".
std::string all_differences(const std::string& here, const std::string& there);

// The JSON Schema (draft 2020-12) of a config file, from the table with which parse_config checks it.
std::string config_json_schema();

}  // namespace dtrun::worker
