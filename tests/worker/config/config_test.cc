#include "worker/config/config.h"

#include <doctest/doctest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "tests/support/files.h"
#include "tests/worker/config/configs.h"
#include "worker/config/options.h"
#include "worker/config/strict_json.h"

namespace dtrun::worker::config_test {
namespace {

using dtrun::test::contains;
using dtrun::test::read_text;
using dtrun::test::write_text;

TEST_CASE("the smallest config gets every default") {
  const JobConfig config = good(smallest().dump());
  CHECK(config.output_dir == "runs/x");
  CHECK(config.train.global_batch_size == 128);
  CHECK(config.train.optim == OptimizerType::kSgd);
  CHECK(config.train.resume_from_checkpoint.kind == ResumeFrom::Kind::kNewest);
  CHECK_FALSE(config.launch.nproc_per_node.has_value());
}

TEST_CASE("each fault names its place, what was found and what is allowed") {
  struct Case {
    const char* train;
    const char* fault;
  };
  const Case cases[] = {
      {R"({"micro_batch_size": 48})",
       "c.json: /train/micro_batch_size: 48 does not divide global_batch_size 128 (allowed: a divisor, e.g. "
       "32 or 64)"},
      {R"({"num_train_epochs": 0})",
       "c.json: /train/num_train_epochs: 0 is out of range (allowed: 1 to 1000000)"},
      {R"({"max_steps": 0})",
       "c.json: /train/max_steps: 0 is out of range (allowed: -1, or 1 to 1000000000000)"},
      {R"({"seed": -1})", "c.json: /train/seed: -1 is out of range (allowed: 0 or more)"},
      {R"({"seed": 18446744073709551616})",
       "c.json: /train/seed: 1.8446744073709552e+19 is out of an integer's range (allowed: 0 or more)"},
      {R"({"num_train_epochs": 3.0})",
       "c.json: /train/num_train_epochs: found 3.0, wanted an integer: write 3 (allowed: 1 to 1000000)"},
      {R"({"num_train_epochs": "3"})",
       "c.json: /train/num_train_epochs: found \"3\" (a string), wanted an integer (allowed: 1 to 1000000)"},
      {R"({"learning_rate": -0.1})",
       "c.json: /train/learning_rate: -0.1 is out of range (allowed: more than 0, at most 1000000)"},
      {R"({"momentum": 1})", "c.json: /train/momentum: 1 is out of range (allowed: 0 or more, less than 1)"},
      {R"({"load_best_model_at_end": true, "eval_strategy": "epoch"})",
       "c.json: /train/load_best_model_at_end: needs eval_strategy and save_strategy to be the same, found "
       "\"epoch\" and \"steps\""},
      {R"({"load_best_model_at_end": true, "eval_strategy": "no", "save_strategy": "no"})",
       "c.json: /train/load_best_model_at_end: has no effect without evaluations (use eval_strategy and "
       "save_strategy \"steps\" with eval_steps and save_steps, or \"epoch\")"},
      {R"({"load_best_model_at_end": true, "eval_steps": 200})",
       "c.json: /train/save_steps: 500 is no multiple of eval_steps 200, as load_best_model_at_end needs it "
       "(allowed: e.g. 400 or 600)"},
      {R"({"load_best_model_at_end": true, "save_steps": 0})",
       "c.json: /train/save_steps: 0 is no multiple of eval_steps 500, as load_best_model_at_end needs it "
       "(allowed: e.g. 500 or 1000)"},
      {R"({"early_stopping_patience": 2, "eval_steps": 0})",
       "c.json: /train/early_stopping_patience: 2 has no effect without evaluations (use eval_strategy "
       "\"steps\" with eval_steps, or \"epoch\")"},
      {R"({"local_replicas": 3})",
       "c.json: /train/local_replicas: 3 does not divide the 8 microbatches of a step (allowed: a divisor, "
       "e.g. "
       "2 or 4)"},
      {R"({"outer_momentum": 0.5})",
       "c.json: /train/outer_momentum: 0.5 has no effect with local_replicas 1 (use 2 or more)"},
      {R"({"sync_every": 64})",
       "c.json: /train/sync_every: 64 has no effect with local_replicas 1 (use 2 or more)"},
      {R"({"batch_norm_group": 2})",
       "c.json: /train/batch_norm_group: 2 has no effect with a model without batch norms (use model.type "
       "\"resnet\" or \"layers\" with some)"},
      {R"({"nesterov": true, "momentum": 0})", "c.json: /train/nesterov: needs a momentum, which is 0"},
      {R"({"nesterov": true, "optim": "adamw"})",
       "c.json: /train/nesterov: has no effect with optim \"adamw\" (use \"sgd\")"},
      {R"({"distill_alpha": 0.9})",
       "c.json: /train/distill_alpha: 0.9 has no effect without distill_from, a teacher's directory"},
      {R"({"optim": "adam"})",
       "c.json: /train/optim: \"adam\" is not known (allowed: \"sgd\" or \"adamw\"); did you mean "
       "\"adamw\"?"},
      {R"({"optim": null})",
       "c.json: /train/optim: found null, wanted a string (allowed: \"sgd\" or \"adamw\")"},
      {R"({"bf16": 1})", "c.json: /train/bf16: found 1 (an integer), wanted a boolean"},
      {R"({"learnin_rate": 1})", "c.json: /train/learnin_rate: unknown key; did you mean \"learning_rate\"?"},
      {R"({"per_device_train_batch_size": 8})",
       "c.json: /train/per_device_train_batch_size: unknown key; global_batch_size counts the samples of a "
       "step over "
       "all workers"},
      {R"({"output_dir": "x"})", "c.json: /train/output_dir: unknown key; did you mean /output_dir?"},
      {R"({"seed": 1, "seed": 2})", "c.json: /train/seed: given twice; keep one"},
      {R"(5)", "c.json: /train: found 5 (an integer), wanted an object"},
      {R"({"warmup_steps": 5})",
       "c.json: /train/warmup_steps: 5 has no effect with lr_scheduler_type \"constant\" (use "
       "\"constant_with_warmup\", \"linear\" or \"cosine\")"},
      {R"({"warmup_ratio": 0.5})",
       "c.json: /train/warmup_ratio: 0.5 has no effect with lr_scheduler_type \"constant\" (use "
       "\"constant_with_warmup\", \"linear\" or \"cosine\")"},
      {R"({"resume_from_checkpoint": 1})",
       "c.json: /train/resume_from_checkpoint: found 1 (an integer), wanted a string (allowed: \"auto\", "
       "\"none\" or a "
       "checkpoint's directory)"},
  };
  for (const Case& c : cases) CHECK(fault_of(with_train(c.train)) == c.fault);
}

TEST_CASE("what means something in TrainingArguments and nothing here is refused with the reason") {
  for (const auto& [name, reason] : std::map<std::string, std::string>{
           {"torch_compile", "the kernels are compiled ahead of time"},
           {"fp16", "with bf16 in bfloat16"},
           {"deepspeed", "every worker holds the whole model"},
           {"fsdp", "every worker holds the whole model"},
           {"ddp_backend", "the exchange of gradients needs no such setting"},
           {"dataloader_num_workers", "samples are in memory"},
           {"per_device_eval_batch_size", "evaluation uses micro_batch_size"},
           {"gradient_accumulation_steps", "global_batch_size and micro_batch_size decide it"},
           {"evaluation_strategy", "use eval_strategy"}}) {
    const std::string fault = fault_of(with_train("{\"" + name + "\": 1}"));
    CHECK_MESSAGE(fault.starts_with("c.json: /train/" + name + ": unknown key; "), fault);
    CHECK_MESSAGE(contains(fault, reason), fault);
    CHECK(contains(fault_of(smallest().dump(), {"train." + name + "=1"}), reason));
  }
  // It is an option of the model.
  CHECK(contains(fault_of(with_train(R"({"gradient_checkpointing": true})")),
                 "did you mean /model/gradient_checkpointing?"));
}

TEST_CASE("text that is not JSON is refused with line and column") {
  CHECK(contains(fault_of("{\n  \"a\": NaN }"), "c.json: line 2, column 8: syntax error"));
  CHECK(contains(fault_of("{\n  \"a\": 1e999 }"), "line 2, column 12: number overflow"));
  CHECK(contains(fault_of("{ \"a\": \"\xff\" }"), "ill-formed UTF-8"));
  CHECK(contains(fault_of(""), "c.json: is empty, wanted JSON"));
  CHECK(contains(fault_of(" \n"), "c.json: is empty, wanted JSON"));
  CHECK(contains(fault_of("[1]"), "c.json: found [1] (a list), wanted an object"));
  CHECK(contains(fault_of("{} {}"), "line 1, column 4"));
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "{\"a\":";
  CHECK(contains(fault_of(deep), "is nested more than 32 levels deep"));
  CHECK(contains(fault_of(std::string(2 << 20, ' ')), "a job config has at most 1048576"));
}

TEST_CASE("all faults of a file are told at once, one a line") {
  const std::string faults =
      fault_of(R"({"train": {"seed": -1, "optm": "sgd"}, "launch": {"nproc_per_node": 0}})");
  CHECK(std::count(faults.begin(), faults.end(), '\n') == 5);
  for (const char* pointer :
       {"/train/seed", "/train/optm", "/launch/nproc_per_node", "/output_dir: is missing",
        "/model/type: is missing", "/data/type: is missing"}) {
    CHECK_MESSAGE(contains(faults, pointer), faults);
  }
}

TEST_CASE(
    "options that contradict each other are told beside other faults, unless one of them is wrong itself") {
  const std::string faults = fault_of(with_train(R"({"micro_batch_size": 48, "seed": -1})"));
  CHECK(contains(faults, "/train/micro_batch_size: 48 does not divide global_batch_size 128"));
  CHECK(contains(faults, "/train/seed: -1 is out of range"));
  CHECK_FALSE(
      contains(fault_of(with_train(R"({"micro_batch_size": 48, "global_batch_size": 0})")), "divide"));
}

TEST_CASE("a message never carries control characters or broken UTF-8 of the input") {
  const std::string fault = fault_of(R"({"a\u001b[31m": 1})");
  CHECK(contains(fault, "/a\\x1b[31m: unknown key"));
  CHECK(contains(fault_of(smallest().dump(), {"output_dir=\xff"}),
                 "override output_dir=\\xff: the value has control"));
}

TEST_CASE("launch options take numbers and words") {
  Json json = smallest();
  json["launch"] = {{"nproc_per_node", 2}, {"nnodes", "1:4"}, {"max_restarts", 3}, {"lanes", "auto"}};
  const JobConfig config = good(json.dump());
  CHECK(config.launch.nproc_per_node == "2");
  CHECK(config.launch.nnodes == "1:4");
  CHECK(config.launch.max_restarts == 3);
  CHECK(config.launch.lanes == "auto");
  json["launch"]["nnodes"] = "4:1";
  CHECK(contains(fault_of(json.dump()),
                 "/launch/nnodes: \"4:1\" is not understood (allowed: a number of nodes"));
}

TEST_CASE("true and false of resume_from_checkpoint mean auto and none, as in Hugging Face") {
  const auto resumed = [](const std::string& value) {
    return good(with_train(R"({"resume_from_checkpoint": )" + value + "}")).train.resume_from_checkpoint;
  };
  CHECK(resumed("true").kind == ResumeFrom::Kind::kNewest);
  CHECK(resumed("false").kind == ResumeFrom::Kind::kNone);
  CHECK(resumed(R"("a/b")").kind == ResumeFrom::Kind::kNamed);
  CHECK(resumed(R"("a/b")").text == "a/b");
  const JobConfig overridden = good(smallest().dump(), {"train.resume_from_checkpoint=false"});
  CHECK(overridden.train.resume_from_checkpoint.text == "none");
}

TEST_CASE("report_to takes a list of one name, as in Hugging Face") {
  const auto with = [](const char* value) {
    return with_train(R"({"report_to": )" + std::string(value) + "}");
  };
  for (const char* value : {R"("tensorboard")", R"(["tensorboard"])"})
    CHECK(good(with(value)).train.report_to == ReportTo::kTensorBoard);
  for (const char* value : {R"(["wandb"])", R"(["tensorboard", "none"])", "[]", R"([["tensorboard"]])"})
    CHECK(contains(fault_of(with(value)), "\"none\" or \"tensorboard\""));
}

TEST_CASE("overrides win over the file and over earlier ones") {
  const JobConfig config = good(with_train(R"({"max_steps": 5})"),
                                {"train.max_steps=6", "train.max_steps=7", "train.optim=adamw",
                                 "output_dir=2024", "data.path=/a=b", "launch.nproc_per_node=3"});
  CHECK(config.train.max_steps == 7);
  CHECK(config.train.optim == OptimizerType::kAdamW);
  CHECK(config.output_dir == "2024");
  CHECK(config.data.path == "/a=b");
  CHECK(config.launch.nproc_per_node == "3");
}

TEST_CASE("a wrong override is named as such, with the nearest option") {
  const std::string text = smallest().dump();
  CHECK(fault_of(text, {"train.max_step=1"}) ==
        "override train.max_step=1: there is no option train.max_step; did you mean train.max_steps?");
  CHECK(contains(fault_of(text, {"seed=1"}), "did you mean train.seed?"));
  CHECK(contains(fault_of(text, {"model.seed=1"}), "did you mean train.seed?"));
  CHECK(
      contains(fault_of(R"({"model": {"seed": 1}})"), "/model/seed: unknown key; did you mean /train/seed?"));
  CHECK(contains(fault_of(text, {"train.foo=1"}), "there is no option train.foo; dtrun help config lists"));
  CHECK(contains(fault_of(text, {"tran.optim=sgd"}), "did you mean train.optim?"));
  CHECK(contains(fault_of(text, {"train.lr=1"}), "; use learning_rate"));
  CHECK(contains(fault_of(text, {"train.learning_rate=1e400"}), "\"1e400\" is out of range (allowed: "));
  CHECK(contains(fault_of(text, {"train.learning_rate=-1e400"}), "\"-1e400\" is out of range (allowed: "));
  CHECK(contains(fault_of(text, {"train.learning_rate=inf"}), "found \"inf\" (a string), wanted a number"));
  CHECK(contains(fault_of(text, {"train.learning_rate="}), "wanted a number"));
  CHECK(contains(fault_of(text, {"train={}"}),
                 ": it is a section; name an entry of it, as in train.num_train"));
  CHECK(contains(fault_of(text, {"train.seed"}), "not of the form key=value"));
  CHECK(contains(fault_of(text, {"=3"}), "not of the form key=value"));
  CHECK(fault_of(text, {"train.seed=x"}) ==
        "override train.seed=x: /train/seed: found \"x\" (a string), wanted an integer (allowed: 0 or more)");
}

TEST_CASE("the canonical text reads back to itself, and leaves launch out") {
  Json json = smallest();
  json["train"] = {{"seed", UINT64_MAX}, {"learning_rate", 0.1}, {"weight_decay", -0.0}, {"max_steps", 7}};
  json["launch"] = {{"nproc_per_node", 2}};
  const std::string text = to_canonical_json(good(json.dump()));
  CHECK(to_canonical_json(good(text)) == text);
  CHECK(contains(text, "\"seed\": 18446744073709551615"));
  CHECK(contains(text, "\"learning_rate\": 0.1,"));
  CHECK_FALSE(contains(text, "launch"));
  CHECK_FALSE(contains(text, "-0.0"));
}

TEST_CASE("configs that differ only in spelling have equal canonical texts") {
  const std::string a = to_canonical_json(good(with_train(R"({"learning_rate": 1e-2, "seed": 42})")));
  const std::string b = to_canonical_json(good(with_train(R"({"seed":42,"learning_rate":0.010})")));
  CHECK(a == b);
}

TEST_CASE("the first difference of two canonical texts is named") {
  const std::string a = to_canonical_json(good(with_train(R"({"seed": 42})")));
  const std::string b = to_canonical_json(good(with_train(R"({"seed": 43, "logging_steps": 1})")));
  CHECK(first_difference(a, a) == "");
  CHECK(first_difference(a, b) == "/train/seed: 42 here, 43 there");
  CHECK(first_difference(a, "{}") == "/output_dir: \"runs/x\" here, not given there");
  CHECK(first_difference("{}", a) == "/output_dir: not given here, \"runs/x\" there");
  CHECK_FALSE(first_difference(a, "no json").empty());
  CHECK_FALSE(first_difference("", a).empty());
}

TEST_CASE("a schedule's own numbers are those of its type, and stand in the canonical text if given") {
  const auto fault = [](const std::string& type, const std::string& kwargs) {
    return fault_of(
        with_train(R"({"lr_scheduler_type": ")" + type + R"(", "lr_scheduler_kwargs": )" + kwargs + "}"));
  };
  const std::string place = "c.json: /train/lr_scheduler_kwargs";
  CHECK(fault("cosine", R"({"power": 2})") ==
        place + "/power: is only for the lr_scheduler_type \"polynomial\"; \"cosine\" takes num_cycles");
  CHECK(fault("polynomial", R"({"powr": 2})") ==
        place + "/powr: unknown key; \"polynomial\" takes lr_end, power");
  CHECK(fault("linear", R"({"decay": 2})") == place + "/decay: unknown key; \"linear\" takes none");
  CHECK(fault("linear", "3") == place + ": found 3 (an integer), wanted an object");
  CHECK(fault("linear", "{}") == "accepted");
  CHECK(fault("cosine_with_min_lr", "{}") == place + ": \"cosine_with_min_lr\" needs min_lr or min_lr_rate");
  CHECK(fault("cosine_with_min_lr", R"({"min_lr": 0, "min_lr_rate": 0})") ==
        place + ": min_lr and min_lr_rate are both given; keep one");
  CHECK(fault("warmup_stable_decay", "{}") == place + ": \"warmup_stable_decay\" needs num_decay_steps");
  CHECK(fault("polynomial", R"({"lr_end": 0.01})") ==
        place + "/lr_end: 0.01 is not lower than learning_rate 0.01");
  CHECK(fault("warmup_stable_decay", R"({"num_decay_steps": 3, "decay_type": "sqrt"})") ==
        place +
            "/decay_type: \"sqrt\" is not known (allowed: \"linear\", \"cosine\" or \"1-sqrt\"); did you "
            "mean \"1-sqrt\"?");
  CHECK(fault_of(smallest().dump(), {"train.lr_scheduler_kwargs.powr=2"}) ==
        "override train.lr_scheduler_kwargs.powr=2: there is no option train.lr_scheduler_kwargs.powr; did "
        "you mean train.lr_scheduler_kwargs.power?");
  CHECK(contains(fault_of(smallest().dump(), {"train.lr_scheduler_kwargs={}"}),
                 ": it is a section; name an entry of it, as in train.lr_scheduler_kwargs.num_cycles"));

  const JobConfig config =
      good(with_train(R"({"lr_scheduler_type": "polynomial", "lr_scheduler_kwargs": {"lr_end": 0}})"),
           {"train.lr_scheduler_kwargs.power=2"});
  CHECK(config.train.lr_scheduler_kwargs.lr_end == 0);
  CHECK(config.train.lr_scheduler_kwargs.power == 2);
  const Json text = Json::parse(to_canonical_json(config));
  CHECK(text["train"]["lr_scheduler_kwargs"] == Json{{"lr_end", 0.0}, {"power", 2.0}});
  CHECK(to_canonical_json(good(text.dump())) == to_canonical_json(config));
  CHECK_FALSE(
      Json::parse(to_canonical_json(good(smallest().dump())))["train"].contains("lr_scheduler_kwargs"));
}

TEST_CASE("a group of batch norms is a power of two of a step's microbatches, or all of them") {
  const auto fault = [](const std::vector<std::string>& more) {
    std::vector<std::string> overrides{"train.global_batch_size=24", "train.micro_batch_size=4",
                                       "model.type=resnet"};
    overrides.insert(overrides.end(), more.begin(), more.end());
    return fault_of(smallest().dump(), overrides);
  };
  for (const char* group : {"0", "1", "2"})
    CHECK(fault({std::string("train.batch_norm_group=") + group}) == "accepted");
  CHECK(contains(fault({"train.batch_norm_group=3"}), "/train/batch_norm_group: 3 is no power of two"));
  CHECK(contains(fault({"train.batch_norm_group=4"}),
                 "/train/batch_norm_group: 4 does not divide the 6 microbatches of a step"));
  CHECK(fault({"train.batch_norm_group=0", "device=cuda"}) == "accepted");
  CHECK(contains(fault({"train.batch_norm_group=2", "train.local_replicas=2"}),
                 "/train/batch_norm_group: needs local_replicas 1"));
  const auto of_layers = [&](const std::string& layers) {
    return fault({"train.batch_norm_group=2", "model.type=layers", "model.layers=" + layers});
  };
  CHECK(of_layers(R"(["Flatten", {"Linear": {"out_features": 8}}, "BatchNorm1d", "Linear"])") == "accepted");
  CHECK(contains(of_layers(R"(["Flatten", "Linear"])"), "2 has no effect with a model without batch norms"));
}

TEST_CASE("data without files has no path, and all other data must have one") {
  const std::string text = smallest().dump(), no_path = smallest_for({"data.type=synthetic"});
  CHECK(contains(fault_of(text, {"data.type=synthetic"}),
                 "/data/path: is only for the type \"fashion_mnist\", "));
  CHECK(fault_of(no_path, {"data.type=synthetic"}) == "accepted");
  for (const char* type : {"fashion_mnist", "idx", "tokens", "text", "csv"}) {
    CHECK(fault_of(no_path, {std::string("data.type=") + type}) == "c.json: /data/path: is missing");
    CHECK(fault_of(text, {std::string("data.type=") + type}) == "accepted");
  }
}

TEST_CASE(
    "a sample's shape has three numbers, and no more values than a model could take; a convnet convolves") {
  CHECK(contains(fault_of(smallest().dump(), {"model.channels=[]"}), "/model/channels: is empty, wanted "));
  CHECK(contains(fault_of(smallest().dump(), {"train.optim=adamw", "train.decay_weights_only=true"}),
                 "/train/decay_weights_only: is for optim \"sgd\"; adamw always does so, leave it out"));
  CHECK(contains(fault_of(smallest().dump(), {"model.type=resnet", "model.depths=[]"}),
                 "/model/depths: has 0 stages (allowed: 1 to 8)"));
  CHECK(
      contains(fault_of(smallest().dump(), {"model.type=resnet", "model.layer_type=bottlenek"}),
               "layer_type: \"bottlenek\" is not known (allowed: \"basic\" or \"bottleneck\"); did you mean "
               "\"bottleneck\"?"));
  const auto fault = [](const std::string& shape) {
    return fault_of(smallest_for({"data.type=synthetic"}), {"data.type=synthetic", "data.shape=" + shape});
  };
  CHECK(fault("[3,32,32]") == "accepted");
  CHECK(contains(fault("[32,32]"), "/data/shape: has 2 numbers, wanted 3: channels, height and width"));
  CHECK(contains(fault("[]"), "/data/shape: has 0 numbers, wanted 3"));
  CHECK(fault("[1,4096,4096]") == "accepted");
  CHECK(contains(fault("[2,4096,4096]"), "/data/shape: has 33554432 values (allowed: at most 16777216)"));
}

TEST_CASE("a list is checked element by element") {
  const auto fault = [](const std::string& list) {
    return fault_of(smallest().dump(), {"model.type=mlp", "model.hidden_sizes=" + list});
  };
  CHECK(contains(fault("7"), "found 7 (an integer), wanted a list of integers"));
  CHECK(contains(fault("[1,0]"), "0 is out of range (allowed: 1 to 131072)"));
  CHECK(contains(fault("[1,\"x\"]"), "found \"x\" (a string), wanted an integer"));
  CHECK(fault("[]") == "accepted");
}

TEST_CASE("a config of the largest length is read, one byte more is not") {
  std::string text = smallest().dump();
  text.resize(kLargestConfig, ' ');
  CHECK(fault_of(text) == "accepted");
  CHECK(contains(fault_of(text + " "), "too long: a job config has at most 1048576 bytes"));
}

TEST_CASE("32 levels are read, the 33rd is not") {
  auto nested = [](int levels) {
    return R"({"output_dir": )" + std::string(levels - 1, '[') + std::string(levels - 1, ']') + "}";
  };
  CHECK(contains(fault_of(nested(kMaxJsonDepth)), "/output_dir: found [[[["));
  CHECK(contains(fault_of(nested(kMaxJsonDepth + 1)), "is nested more than 32 levels deep"));
}

TEST_CASE("twenty faults are told in full, of more only how many") {
  auto faults = [](int count) {
    Json json = smallest();
    for (int i = 0; i < count; ++i) json["unknown" + std::to_string(i)] = 1;
    return fault_of(json.dump());
  };
  const std::string twenty = faults(20), more = faults(22);
  CHECK(std::ranges::count(twenty, '\n') == 19);
  CHECK(contains(twenty, "unknown19"));
  CHECK(std::ranges::count(more, '\n') == 20);
  CHECK_MESSAGE(more.ends_with("\nc.json: and 2 more"), more);
}

TEST_CASE("a value of 60 characters is shown whole in a message, a longer one is cut there") {
  auto fault_at_list = [](std::size_t length) {  // length: characters of the list as written
    return fault_of(smallest().dump(), {"train.seed=[\"" + std::string(length - 4, 'x') + "\"]"});
  };
  CHECK(contains(fault_at_list(60), "found [\"" + std::string(56, 'x') + "\"] (a list)"));
  CHECK(contains(fault_at_list(61), "found [\"" + std::string(57, 'x') + "\"… (a list)"));
  const std::string text = fault_of(smallest().dump(), {"model.type=" + std::string(61, 'x')});
  CHECK_MESSAGE(contains(text, "/model/type: \"" + std::string(60, 'x') + "…\" is not known"), text);
}

TEST_CASE(
    "~/ in a path is the home, in the file and in an override, and the canonical text has the home itself") {
  Json json = smallest();
  json["output_dir"] = "~/runs/a";
  const std::vector<std::string> overrides{"data.path=~/data"};
  const auto config = parse_config(json.dump(), "c.json", overrides, "/home/u");
  REQUIRE_MESSAGE(config.ok(), config.status().message());
  CHECK(config.value().output_dir == "/home/u/runs/a");
  CHECK(config.value().data.path == "/home/u/data");
  CHECK(contains(to_canonical_json(config.value()), "\"/home/u/runs/a\""));
  CHECK(
      contains(parse_config(json.dump(), "c.json", {}, nullptr).status().message(), "c.json: /output_dir: "));
  json["output_dir"] = "$HOME/runs";
  CHECK(contains(parse_config(json.dump(), "c.json", {}, "/home/u").status().message(), "/output_dir: "));
}

TEST_CASE("every config in configs/ is valid") {
  int seen = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(DTRUN_SOURCE_DIR) + "/configs")) {
    if (entry.path().extension() != ".json" || entry.path().filename() == "job.schema.json") continue;
    const auto config = parse_config(read_text(entry.path()), entry.path().string(), {});
    CHECK_MESSAGE(config.ok(), config.status().message());
    ++seen;
  }
  CHECK(seen >= 1);
}

}  // namespace
}  // namespace dtrun::worker::config_test
