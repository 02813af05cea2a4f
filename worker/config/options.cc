#include "worker/config/options.h"

#include "worker/config/launch_spellings.h"

namespace dtrun::worker {

namespace {

template <auto Member>
FieldRef top(JobConfig& config) {
  return field_ref(&(config.*Member));
}

template <auto Group, auto Member>
FieldRef in(JobConfig& config) {
  return field_ref(&(config.*Group.*Member));
}

constexpr auto kModel = &JobConfig::model;
constexpr auto kData = &JobConfig::data;
constexpr auto kTrain = &JobConfig::train;
constexpr auto kRecovery = &JobConfig::recovery;
constexpr auto kLaunch = &JobConfig::launch;

template <auto Member>
FieldRef in_kwargs(JobConfig& config) {
  return field_ref(&(config.train.lr_scheduler_kwargs.*Member));
}

// Bounds above those of any real job, which keep products of two options within 64 bits.
constexpr double kMaxBatch = 1 << 20;
constexpr double kMaxSteps = 1e12;
constexpr double kMaxCount = 1e6;
constexpr double kMaxWidth = 1 << 17;
constexpr double kMaxChannels = 4096;

constexpr Bounds kOneOrMore{.min = 1, .max = kMaxSteps};
constexpr Bounds kZeroOrMore{.min = 0, .max = kMaxSteps};
constexpr Bounds kFraction{.min = 0, .max = 1, .max_open = true};

const std::vector<Option>& table() {
  static const std::vector<Option> options = {
      {.pointer = "/output_dir",
       .field = top<&JobConfig::output_dir>,
       .description = "Directory for checkpoints, metrics and the final model; created if it is missing. "
                      "Relative paths are relative to the working directory; ~/ is the home, here and in "
                      "other paths.",
       .required = true,
       .is_path = true},
      {.pointer = "/device",
       .field = top<&JobConfig::device>,
       .description = "Device of the workers. cuda: a GPU for each worker of a node, or the job is refused. "
                      "auto: cuda if this build has it and there are enough GPUs, else cpu. All nodes of a "
                      "job use the same one, since another device gives other bits."},

      {.pointer = "/model/type",
       .field = in<kModel, &ModelConfig::type>,
       .description = "The model. convnet: convolutions and two linear layers, for images. mlp: linear "
                      "layers, for values of any shape. gpt2: a transformer, for tokens. resnet: a residual "
                      "network, for images. layers: your own, as a list.",
       .required = true},
      {.pointer = "/model/layers",
       .field = in<kModel, &ModelConfig::layers>,
       .description = "The layers, in order, as PyTorch's modules with their arguments: {\"Conv2d\": "
                      "{\"out_channels\": 20, \"kernel_size\": 5}}, \"ReLU\". docs/model.md has them all.",
       .required = true,
       .of = {"layers"}},
      {.pointer = "/model/channels",
       .field = in<kModel, &ModelConfig::channels>,
       .description = "Output channels of each convolution; one convolution per entry, each followed by "
                      "ReLU and a max-pool of 2, which drops an odd row or column.",
       .of = {"convnet"},
       .range = {.min = 1, .max = kMaxChannels}},
      {.pointer = "/model/kernel_size",
       .field = in<kModel, &ModelConfig::kernel_size>,
       .description = "Height and width of each convolution's kernel.",
       .of = {"convnet"},
       .range = {.min = 1, .max = 31}},
      {.pointer = "/model/depths",
       .field = in<kModel, &ModelConfig::depths>,
       .description = "Blocks of each stage. The default is ResNet-18; [3, 4, 6, 3] is ResNet-34. From the "
                      "second stage on each has twice the channels and half the height and width of the one "
                      "before.",
       .of = {"resnet"},
       .range = {.min = 1, .max = 100}},
      {.pointer = "/model/layer_type",
       .field = in<kModel, &ModelConfig::layer_type>,
       .description = "The blocks. basic: two convolutions of 3x3. bottleneck: 1x1, 3x3 and 1x1 to four "
                      "times the channels; with depths [3, 4, 6, 3] it is ResNet-50, with [3, 4, 23, 3] "
                      "ResNet-101.",
       .of = {"resnet"}},
      {.pointer = "/model/embedding_size",
       .field = in<kModel, &ModelConfig::embedding_size>,
       .description = "Channels of the first convolution, and of the 3x3 ones of the first stage.",
       .of = {"resnet"},
       .range = {.min = 1, .max = kMaxChannels}},
      {.pointer = "/model/stem",
       .field = in<kModel, &ModelConfig::stem>,
       .description = "What comes before the blocks. imagenet: a convolution of 7x7 with stride 2 and a "
                      "max-pool, for images of 224x224. cifar: a convolution of 3x3, for 32x32.",
       .of = {"resnet"}},
      {.pointer = "/model/hidden_sizes",
       .field = in<kModel, &ModelConfig::hidden_sizes>,
       .description = "Width of each hidden layer.",
       .of = {"mlp"},
       .range = {.min = 1, .max = kMaxWidth}},
      {.pointer = "/model/activation",
       .field = in<kModel, &ModelConfig::activation>,
       .description = "Activation of the hidden layers; gelu is its tanh approximation.",
       .of = {"mlp"}},
      {.pointer = "/model/n_layer",
       .field = in<kModel, &ModelConfig::n_layer>,
       .description = "Transformer blocks.",
       .of = {"gpt2"},
       .range = {.min = 1, .max = 1000}},
      {.pointer = "/model/n_head",
       .field = in<kModel, &ModelConfig::n_head>,
       .description = "Attention heads per block; divides n_embd.",
       .of = {"gpt2"},
       .range = {.min = 1, .max = 1000}},
      {.pointer = "/model/n_embd",
       .field = in<kModel, &ModelConfig::n_embd>,
       .description = "Width of the blocks.",
       .of = {"gpt2"},
       .range = {.min = 1, .max = kMaxWidth}},
      {.pointer = "/model/n_positions",
       .field = in<kModel, &ModelConfig::n_positions>,
       .description = "Maximum length of a sample, in tokens.",
       .of = {"gpt2"},
       .range = {.min = 1, .max = kMaxWidth}},
      {.pointer = "/model/vocab_size",
       .field = in<kModel, &ModelConfig::vocab_size>,
       .description = "Vocabulary size of the model; not smaller than that of the data, and equal to it if "
                      "not given.",
       .of = {"gpt2"},
       .range = {.min = 0, .max = 10 * kMaxWidth}},
      {.pointer = "/model/dropout",
       .field = in<kModel, &ModelConfig::dropout>,
       .description = "Dropout probability in training: of each hidden layer (mlp); of the embeddings and "
                      "the residual branches (gpt2). Not of attention weights.",
       .of = {"mlp", "gpt2"},
       .range = kFraction},
      {.pointer = "/model/gradient_checkpointing",
       .field = in<kModel, &ModelConfig::gradient_checkpointing>,
       .description = "Recompute the values within a block in backward instead of keeping them: less "
                      "memory, a third more work, the same bits.",
       .of = {"gpt2"}},

      {.pointer = "/data/type",
       .field = in<kData, &DataConfig::type>,
       .description = "Kind of data set. fashion_mnist: four IDX files, gzipped or not. idx: any data set "
                      "in such files. cifar10, cifar100: their binary versions. image_folder: PNGs and "
                      "JPEGs in a folder for each class. tokens: .bin files of 16-bit tokens, as dtrun "
                      "prepare, llm.c and nanoGPT write them. text: any files, one token per byte, or "
                      "encoded by a tokenizer. csv: tables of numbers. synthetic: no files, random samples "
                      "that can be learned. docs/data.md describes each.",
       .required = true},
      {.pointer = "/data/path",
       .field = in<kData, &DataConfig::path>,
       .description = "Directory with the data set's files; for some types, one file.",
       .required = true,
       .of = {"fashion_mnist", "idx", "cifar10", "cifar100", "image_folder", "tokens", "text", "csv"},
       .is_path = true},
      {.pointer = "/data/files",
       .field = in<kData, &DataConfig::files>,
       .description = "Shell pattern for the names of the files of a directory to read.",
       .of = {"text"}},
      {.pointer = "/data/tokenizer",
       .field = in<kData, &DataConfig::tokenizer>,
       .description = "A byte-level BPE: Hugging Face's tokenizer.json, GPT-2's vocab.json with merges.txt "
                      "beside it, or a directory with either. For text: encodes it and sets the vocabulary "
                      "size; without one each byte is a token. For tokens: the one that made them, for "
                      "dtrun sample and export; by default the one beside the files, if any.",
       .of = {"tokens", "text"},
       .is_path = true},
      {.pointer = "/data/sequence_length",
       .field = in<kData, &DataConfig::sequence_length>,
       .description = "Tokens per sample; the target of each is the next one.",
       .of = {"tokens", "text"},
       .range = {.min = 1, .max = kMaxWidth}},
      {.pointer = "/data/vocab_size",
       .field = in<kData, &DataConfig::vocab_size>,
       .description = "The tokenizer's vocabulary size, or more; tokens in the files are below it.",
       .of = {"tokens"},
       .range = {.min = 1, .max = 1 << 16}},
      {.pointer = "/data/test_fraction",
       .field = in<kData, &DataConfig::test_fraction>,
       .description = "Fraction of the data, at its end, used for the test. For tokens and csv only if "
                      "data.path is one file: else the files' names tell. For image_folder only without a "
                      "folder val: data.seed draws which images.",
       .of = {"tokens", "text", "csv", "image_folder", "synthetic"},
       .range = {.min = 0, .max = 1, .min_open = true, .max_open = true}},
      {.pointer = "/data/classes",
       .field = in<kData, &DataConfig::classes>,
       .description = "Number of classes; labels are 0 to one less.",
       .of = {"idx", "csv", "synthetic"},
       .range = {.min = 2, .max = kMaxWidth}},
      {.pointer = "/data/mean",
       .field = in<kData, &DataConfig::mean>,
       .description = "Mean subtracted from each byte's value, scaled to 0..1, before division by std. One "
                      "number, or a list of one for each channel.",
       .of = {"idx", "image_folder"},
       .range = {.min = -1e6, .max = 1e6}},
      {.pointer = "/data/std",
       .field = in<kData, &DataConfig::std>,
       .description = "Divisor of each value less the mean: a number or a list, as mean.",
       .of = {"idx", "image_folder"},
       .range = {.min = 1e-6, .max = 1e6}},
      {.pointer = "/data/image_size",
       .field = in<kData, &DataConfig::image_size>,
       .description = "Height and width of a sample, cut out of the middle of the resized image.",
       .of = {"image_folder"},
       .range = {.min = 1, .max = 4096}},
      {.pointer = "/data/channels",
       .field = in<kData, &DataConfig::channels>,
       .description = "3: red, green and blue. 1: grey.",
       .of = {"image_folder"},
       .range = {.min = 1, .max = 3}},
      {.pointer = "/data/resize",
       .field = in<kData, &DataConfig::resize>,
       .description = "Each image is resized so that its shorter side has so many pixels, as by "
                      "torchvision's Resize. 0: so that it just covers image_size.",
       .of = {"image_folder"},
       .range = {.min = 0, .max = 16384}},
      {.pointer = "/data/random_crop_padding",
       .field = in<kData, &DataConfig::random_crop_padding>,
       .description = "In training, each image is cut at random from itself with so many black pixels "
                      "around, as by torchvision's RandomCrop; anew in each epoch. 0: never.",
       .of = {"fashion_mnist", "idx", "cifar10", "cifar100", "image_folder", "synthetic"},
       .range = {.min = 0, .max = 1000}},
      {.pointer = "/data/random_horizontal_flip",
       .field = in<kData, &DataConfig::random_horizontal_flip>,
       .description = "Probability with which an image is mirrored in training, as by torchvision's "
                      "RandomHorizontalFlip.",
       .of = {"fashion_mnist", "idx", "cifar10", "cifar100", "image_folder", "synthetic"},
       .range = {.min = 0, .max = 1}},
      {.pointer = "/data/label_column",
       .field = in<kData, &DataConfig::label_column>,
       .description = "Column with the label: its name in the header, or its number from 1.",
       .of = {"csv"},
       .integer_too = true},
      {.pointer = "/data/delimiter",
       .field = in<kData, &DataConfig::delimiter>,
       .description = "The character between the fields of a line.",
       .of = {"csv"}},
      {.pointer = "/data/header",
       .field = in<kData, &DataConfig::header>,
       .description = "Whether the first line has the columns' names. auto: if label_column is one of them, "
                      "or none is a number.",
       .of = {"csv"}},
      {.pointer = "/data/samples",
       .field = in<kData, &DataConfig::samples>,
       .description = "Samples to generate, for training and test.",
       .of = {"synthetic"},
       .range = {.min = 2, .max = 4294967295.0}},
      {.pointer = "/data/shape",
       .field = in<kData, &DataConfig::shape>,
       .description = "Channels, height and width of a sample.",
       .of = {"synthetic"},
       .range = {.min = 1, .max = 4096}},
      {.pointer = "/data/seed",
       .field = in<kData, &DataConfig::seed>,
       .description = "Seed of the samples, or of which images are for the test.",
       .of = {"image_folder", "synthetic"},
       .range = {.min = 0}},

      {.pointer = "/train/num_train_epochs",
       .field = in<kTrain, &TrainConfig::num_train_epochs>,
       .description = "Passes over the training data.",
       .range = {.min = 1, .max = kMaxCount}},
      {.pointer = "/train/max_steps",
       .field = in<kTrain, &TrainConfig::max_steps>,
       .description = "Optimizer steps of the whole run; overrides num_train_epochs. -1: epochs decide.",
       .range = {.min = -1, .max = kMaxSteps, .not_zero = true}},
      {.pointer = "/train/global_batch_size",
       .field = in<kTrain, &TrainConfig::global_batch_size>,
       .description = "Samples per optimizer step, over all workers.",
       .range = {.min = 1, .max = kMaxBatch}},
      {.pointer = "/train/micro_batch_size",
       .field = in<kTrain, &TrainConfig::micro_batch_size>,
       .description = "Samples that one lane computes at a time; divides global_batch_size.",
       .range = {.min = 1, .max = kMaxBatch}},
      {.pointer = "/train/batch_norm_group",
       .field = in<kTrain, &TrainConfig::batch_norm_group>,
       .description = "Microbatches that batch norms normalise together: 1, another power of two that "
                      "divides those of a step, or 0, all, which is PyTorch's SyncBatchNorm. With more than "
                      "1 they go in lock step, and a worker needs the memory for all of its microbatches.",
       .range = {.min = 0, .max = kMaxBatch}},
      {.pointer = "/train/dataloader_drop_last",
       .field = in<kTrain, &TrainConfig::dataloader_drop_last>,
       .description = "Drop an epoch's last step if it has fewer samples than global_batch_size."},
      {.pointer = "/train/label_smoothing_factor",
       .field = in<kTrain, &TrainConfig::label_smoothing_factor>,
       .description = "Share of the target spread evenly over all classes, in the training loss and, as in "
                      "transformers, in the evaluation loss.",
       .range = kFraction},
      {.pointer = "/train/optim",
       .field = in<kTrain, &TrainConfig::optim>,
       .description = "The optimizer, as in torch.optim."},
      {.pointer = "/train/learning_rate",
       .field = in<kTrain, &TrainConfig::learning_rate>,
       .description = "Peak learning rate of the schedule.",
       .range = {.min = 0, .max = 1e6, .min_open = true}},
      {.pointer = "/train/momentum",
       .field = in<kTrain, &TrainConfig::momentum>,
       .description = "Momentum of sgd.",
       .range = kFraction},
      {.pointer = "/train/nesterov",
       .field = in<kTrain, &TrainConfig::nesterov>,
       .description = "Nesterov's momentum, for sgd."},
      {.pointer = "/train/adam_beta1",
       .field = in<kTrain, &TrainConfig::adam_beta1>,
       .description = "Decay of adamw's mean of the gradient.",
       .range = kFraction},
      {.pointer = "/train/adam_beta2",
       .field = in<kTrain, &TrainConfig::adam_beta2>,
       .description = "Decay of adamw's mean of the squared gradient.",
       .range = kFraction},
      {.pointer = "/train/adam_epsilon",
       .field = in<kTrain, &TrainConfig::adam_epsilon>,
       .description = "Added to adamw's denominator.",
       .range = {.min = 0, .max = 1, .min_open = true}},
      {.pointer = "/train/weight_decay",
       .field = in<kTrain, &TrainConfig::weight_decay>,
       .description = "Weight decay: for sgd coupled, of all parameters; for adamw decoupled, of all but "
                      "biases and norms. 0: none.",
       .range = {.min = 0, .max = 1e6}},
      {.pointer = "/train/decay_weights_only",
       .field = in<kTrain, &TrainConfig::decay_weights_only>,
       .description = "The weight decay of sgd leaves out biases and norms, as that of adamw always does."},
      {.pointer = "/train/max_grad_norm",
       .field = in<kTrain, &TrainConfig::max_grad_norm>,
       .description = "Gradient norm to clip to. 0: no clipping.",
       .range = {.min = 0, .max = 1e30}},
      {.pointer = "/train/lr_scheduler_type",
       .field = in<kTrain, &TrainConfig::lr_scheduler_type>,
       .description = "Learning rate schedule, as in Hugging Face transformers."},
      {.pointer = "/train/warmup_steps",
       .field = in<kTrain, &TrainConfig::warmup_steps>,
       .description = "Steps over which the learning rate rises from 0; not used by \"constant\".",
       .range = kZeroOrMore},
      {.pointer = "/train/warmup_ratio",
       .field = in<kTrain, &TrainConfig::warmup_ratio>,
       .description = "If warmup_steps is 0: warm-up as a fraction of the run's steps, rounded up to a "
                      "whole step.",
       .range = {.min = 0, .max = 1}},
      {.pointer = "/train/bf16",
       .field = in<kTrain, &TrainConfig::bf16>,
       .description = "Matmuls in bfloat16 with fp32 sums; all else, including saved files, stays fp32. On "
                      "GPUs, and on processors with AVX512_BF16 or AMX."},
      {.pointer = "/train/seed",
       .field = in<kTrain, &TrainConfig::seed>,
       .description = "Seed of initial values, sample order and all other random numbers.",
       .range = {.min = 0}},
      {.pointer = "/train/local_replicas",
       .field = in<kTrain, &TrainConfig::local_replicas>,
       .description = "Replicas of the model that train on their own, each on its part of every step's "
                      "microbatches, and meet every sync_every steps: local SGD, or DiLoCo with "
                      "outer_momentum, for slow networks. They are part of the result as microbatches are, "
                      "whatever number of workers computes them. 1: plain data parallelism.",
       .range = {.min = 1, .max = 1024}},
      {.pointer = "/train/sync_every",
       .field = in<kTrain, &TrainConfig::sync_every>,
       .description = "Steps that several local_replicas train on their own before they meet. Evaluations, "
                      "checkpoints and changes of workers wait for that.",
       .range = {.min = 1, .max = kMaxCount}},
      {.pointer = "/train/outer_learning_rate",
       .field = in<kTrain, &TrainConfig::outer_learning_rate>,
       .description = "How far the model goes from where local_replicas began towards their mean when they "
                      "meet. 1: to the mean.",
       .range = {.min = 0, .max = 10, .min_open = true}},
      {.pointer = "/train/outer_momentum",
       .field = in<kTrain, &TrainConfig::outer_momentum>,
       .description = "Nesterov momentum of these steps.",
       .range = kFraction},
      {.pointer = "/train/allow_mixed_devices",
       .field = in<kTrain, &TrainConfig::allow_mixed_devices>,
       .description =
           "Allow workers whose results differ in the last bits, as on other kinds of processor or "
           "with other versions of oneDNN or NVIDIA's libraries: the result then depends on which "
           "worker computed what. Else such a node is turned away."},
      {.pointer = "/train/allow_other_data",
       .field = in<kTrain, &TrainConfig::allow_other_data>,
       .description =
           "Resume also from a checkpoint of a run on another number of training samples: its steps were "
           "then of other epochs and samples. Else it is refused; other contents are only told."},
      {.pointer = "/train/on_divergence",
       .field = in<kTrain, &TrainConfig::on_divergence>,
       .description =
           "On a non-finite loss or gradient: end the job before it reaches the parameters (stop), "
           "or only report it (warn)."},
      {.pointer = "/train/verify_sync_steps",
       .field = in<kTrain, &TrainConfig::verify_sync_steps>,
       .description = "Steps between comparisons of all workers' parameters by hash; a difference ends the "
                      "job. 0: never.",
       .range = kZeroOrMore},
      {.pointer = "/train/logging_steps",
       .field = in<kTrain, &TrainConfig::logging_steps>,
       .description = "Steps between lines of metrics.",
       .range = kOneOrMore},
      {.pointer = "/train/report_to",
       .field = in<kTrain, &TrainConfig::report_to>,
       .description = "tensorboard: metrics go to event files in output_dir/runs too, which `tensorboard "
                      "--logdir` shows. metrics.jsonl is written in any case.",
       .list_too = true},
      {.pointer = "/train/eval_steps",
       .field = in<kTrain, &TrainConfig::eval_steps>,
       .description = "Steps between evaluations. 0: only at the end.",
       .range = kZeroOrMore},
      {.pointer = "/train/save_steps",
       .field = in<kTrain, &TrainConfig::save_steps>,
       .description = "Steps between checkpoints. 0: only at the end.",
       .range = kZeroOrMore},
      {.pointer = "/train/save_total_limit",
       .field = in<kTrain, &TrainConfig::save_total_limit>,
       .description = "Checkpoints to keep; older ones are removed. 0: keep all.",
       .range = {.min = 0, .max = kMaxCount}},
      {.pointer = "/train/eval_strategy",
       .field = in<kTrain, &TrainConfig::eval_strategy>,
       .description = "Evaluate every eval_steps steps, after each epoch, or only at the end (no), where it "
                      "is always done."},
      {.pointer = "/train/save_strategy",
       .field = in<kTrain, &TrainConfig::save_strategy>,
       .description = "Write checkpoints every save_steps steps, after each epoch, or only at the end (no), "
                      "where one always is."},
      {.pointer = "/train/load_best_model_at_end",
       .field = in<kTrain, &TrainConfig::load_best_model_at_end>,
       .description = "The final model is the best one evaluated, not the last. Each new best one is saved "
                      "before training goes on, and save_total_limit does not remove it. eval_strategy and "
                      "save_strategy must be the same."},
      {.pointer = "/train/metric_for_best_model",
       .field = in<kTrain, &TrainConfig::metric_for_best_model>,
       .description = "Metric of the test data by which models are compared."},
      {.pointer = "/train/greater_is_better",
       .field = in<kTrain, &TrainConfig::greater_is_better>,
       .description = "Whether a greater metric is better; by default true for accuracy, false for loss."},
      {.pointer = "/train/early_stopping_patience",
       .field = in<kTrain, &TrainConfig::early_stopping_patience>,
       .description = "Evaluations in a row without a new best one after which training ends. 0: no early "
                      "stopping.",
       .range = {.min = 0, .max = kMaxCount}},
      {.pointer = "/train/init_from",
       .field = in<kTrain, &TrainConfig::init_from>,
       .description = "Initial parameters, instead of random ones: a model.safetensors, or a directory with "
                      "one, such as an output_dir, a checkpoint, or a GPT-2 from Hugging Face. Ignored by a "
                      "run that resumes from a checkpoint of its own.",
       .is_path = true},
      {.pointer = "/train/ignore_mismatched_sizes",
       .field = in<kTrain, &TrainConfig::ignore_mismatched_sizes>,
       .description =
           "Parameters of which init_from has no tensor of the same shape begin with random values, "
           "as the last layer does where classes are others; each is told. Else it is refused."},
      {.pointer = "/train/quantize_aware",
       .field = in<kTrain, &TrainConfig::quantize_aware>,
       .description = "Train for an export with --quantize of this type: linear layers and convolutions "
                      "compute, in evaluations too, with their weights rounded as that stores them, and "
                      "gradients go to the weights as they are."},
      {.pointer = "/train/distill_from",
       .field = in<kTrain, &TrainConfig::distill_from>,
       .description = "Directory of a teacher, whose outputs the model learns to give: the output_dir of a "
                      "job of any model.type with the same classes or vocabulary, one of its checkpoints, or "
                      "a GPT-2 from Hugging Face, on every node. The loss becomes distill_alpha * "
                      "distill_temperature^2 * KL(teacher || "
                      "model), of outputs divided by distill_temperature, + (1 - distill_alpha) * "
                      "cross-entropy; that of evaluations stays cross-entropy.",
       .is_path = true},
      {.pointer = "/train/distill_temperature",
       .field = in<kTrain, &TrainConfig::distill_temperature>,
       .description = "A higher temperature shows more of what the teacher holds to be nearly right.",
       .range = {.min = 0, .max = 1000, .min_open = true}},
      {.pointer = "/train/distill_alpha",
       .field = in<kTrain, &TrainConfig::distill_alpha>,
       .description = "The teacher's part of the loss; 0: the data's targets alone, as without a teacher.",
       .range = {.min = 0, .max = 1}},
      {.pointer = "/train/resume_from_checkpoint",
       .field = in<kTrain, &TrainConfig::resume_from_checkpoint>,
       .description =
           "auto (or true): resume from the newest good checkpoint in output_dir. none (or false): "
           "start anew; refused if output_dir already holds a model or checkpoints, so that none "
           "is overwritten. Anything else: a checkpoint's directory.",
       .is_path = true},

      {.pointer = "/train/lr_scheduler_kwargs/num_cycles",
       .field = in_kwargs<&SchedulerKwargs::num_cycles>,
       .description = "Number of cosine waves; one half unless given. For cosine_with_restarts: number of "
                      "decays from the peak learning rate to 0; one unless given.",
       .of = {"cosine", "cosine_with_restarts", "cosine_with_min_lr", "warmup_stable_decay"},
       .range = {.min = 0, .max = kMaxCount, .min_open = true}},
      {.pointer = "/train/lr_scheduler_kwargs/min_lr",
       .field = in_kwargs<&SchedulerKwargs::min_lr>,
       .description = "Final learning rate; this or min_lr_rate must be given.",
       .of = {"cosine_with_min_lr"},
       .range = {.min = 0, .max = 1e6}},
      {.pointer = "/train/lr_scheduler_kwargs/min_lr_rate",
       .field = in_kwargs<&SchedulerKwargs::min_lr_rate>,
       .description = "min_lr as a part of learning_rate.",
       .of = {"cosine_with_min_lr"},
       .range = {.min = 0, .max = 1}},
      {.pointer = "/train/lr_scheduler_kwargs/lr_end",
       .field = in_kwargs<&SchedulerKwargs::lr_end>,
       .description = "Final learning rate, lower than learning_rate; 1e-7 unless given.",
       .of = {"polynomial"},
       .range = {.min = 0, .max = 1e6}},
      {.pointer = "/train/lr_scheduler_kwargs/power",
       .field = in_kwargs<&SchedulerKwargs::power>,
       .description = "Exponent of the decay; 1, which is linear, unless given.",
       .of = {"polynomial"},
       .range = {.min = 0, .max = 1000, .min_open = true}},
      {.pointer = "/train/lr_scheduler_kwargs/timescale",
       .field = in_kwargs<&SchedulerKwargs::timescale>,
       .description = "The learning rate is the peak times sqrt(timescale / steps), with steps shifted so "
                      "that the warm-up ends at timescale; by default the warm-up's length, or 10000 "
                      "without one.",
       .of = {"inverse_sqrt"},
       .range = kOneOrMore},
      {.pointer = "/train/lr_scheduler_kwargs/num_decay_steps",
       .field = in_kwargs<&SchedulerKwargs::num_decay_steps>,
       .description = "Steps over which the learning rate decays; must be given.",
       .of = {"warmup_stable_decay"},
       .range = kZeroOrMore},
      {.pointer = "/train/lr_scheduler_kwargs/num_stable_steps",
       .field = in_kwargs<&SchedulerKwargs::num_stable_steps>,
       .description = "Steps at the peak learning rate; by default what warm-up and decay leave of the run.",
       .of = {"warmup_stable_decay"},
       .range = kZeroOrMore},
      {.pointer = "/train/lr_scheduler_kwargs/min_lr_ratio",
       .field = in_kwargs<&SchedulerKwargs::min_lr_ratio>,
       .description = "First and last learning rate, as a fraction of learning_rate; 0 unless given.",
       .of = {"warmup_stable_decay"},
       .range = {.min = 0, .max = 1}},
      {.pointer = "/train/lr_scheduler_kwargs/warmup_type",
       .field = in_kwargs<&SchedulerKwargs::warmup_type>,
       .description = "Warm-up curve; linear unless given.",
       .of = {"warmup_stable_decay"}},
      {.pointer = "/train/lr_scheduler_kwargs/decay_type",
       .field = in_kwargs<&SchedulerKwargs::decay_type>,
       .description = "Decay curve; cosine unless given.",
       .of = {"warmup_stable_decay"}},

      {.pointer = "/recovery/in_memory_checkpoint_steps",
       .field = in<kRecovery, &RecoveryConfig::in_memory_checkpoint_steps>,
       .description = "Steps between copies of each worker's parameters and optimizer state into memory "
                      "that its agent holds, made while the next gradient is computed. If all workers die "
                      "at once, the run resumes from there and reads no checkpoint. Takes twice the memory "
                      "of parameters and optimizer state per worker, of the host even if they are on a GPU. "
                      "0: never. With local_replicas every worker gets the state of all of them, at the "
                      "first sync from then on, and keeps it itself.",
       .range = kZeroOrMore},

      {.pointer = "/launch/nproc_per_node",
       .field = in<kLaunch, &LaunchConfig::nproc_per_node>,
       .description = "Workers on each node, as --nproc_per_node.",
       .integer_too = true,
       .spelling = kNproc},
      {.pointer = "/launch/nnodes",
       .field = in<kLaunch, &LaunchConfig::nnodes>,
       .description = "Nodes, or MIN:MAX, as --nnodes.",
       .integer_too = true,
       .spelling = kNodes},
      {.pointer = "/launch/max_restarts",
       .field = in<kLaunch, &LaunchConfig::max_restarts>,
       .description = "Restarts after failures in the whole job, as --max_restarts.",
       .range = {.min = 0, .max = kMaxCount}},
      {.pointer = "/launch/lanes",
       .field = in<kLaunch, &LaunchConfig::lanes>,
       .description = "Lanes in each worker, as --lanes.",
       .integer_too = true,
       .spelling = kLanes},
      {.pointer = "/launch/recovery",
       .field = in<kLaunch, &LaunchConfig::recovery>,
       .description = "After a failure, surviving workers keep their training state (memory), or all restart "
                      "from the newest checkpoint (checkpoint); as --recovery."},
      {.pointer = "/launch/log_dir",
       .field = in<kLaunch, &LaunchConfig::log_dir>,
       .description = "Directory for the workers' output, as --log_dir.",
       .is_path = true},
  };
  return options;
}

}  // namespace

std::span<const Option> config_options() { return table(); }

}  // namespace dtrun::worker
