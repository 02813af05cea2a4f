// Properties of every option of the table, including its bounds.
#include "worker/config/options.h"

#include <doctest/doctest.h>
#include <regex.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "proto/core/overloaded.h"
#include "tests/support/files.h"
#include "tests/worker/config/configs.h"

namespace dtrun::worker::options_test {
namespace {

using dtrun::test::contains;

// The type that a group must have for the option, as an override, and what that type needs.
std::vector<std::string> type_for(const Option& option) {
  if (option.of.empty()) return {};
  std::string type = type_of(group_of(option)).substr(1);
  std::ranges::replace(type, '/', '.');
  const std::string kwargs = "train.lr_scheduler_kwargs.";
  std::vector<std::string> overrides{type + "=" + std::string(option.of.front())};
  if (option.of.front() == "layers") overrides.push_back(R"(model.layers=["Linear"])");
  if (option.of.front() == "cosine_with_min_lr") overrides.push_back(kwargs + "min_lr=0");
  if (option.of.front() == "warmup_stable_decay") overrides.push_back(kwargs + "num_decay_steps=1");
  return overrides;
}

bool is_optional(const Option& option) {
  JobConfig config;
  return std::visit(Overloaded{
                        [](const ChoiceRef& field) { return !field.get(); },
                        [](const auto* field) {
                          return requires { field->has_value(); };
                        },
                    },
                    option.field(config));
}

TEST_CASE("every option has a description, and but for what is not given a place in the canonical text") {
  for (const Option& option : config_options()) {
    CAPTURE(option.pointer);
    CHECK_FALSE(option.description.empty());
    const std::string text = to_canonical_json(good(smallest_for(type_for(option)), type_for(option)));
    const bool there = Json::parse(text).contains(Json::json_pointer(std::string(option.pointer)));
    const std::string given = path_of(option) + "=";
    const bool has_value = std::ranges::any_of(
        type_for(option), [&](const std::string& override) { return override.starts_with(given); });
    CHECK(there == (has_value || !is_optional(option)));
    CHECK(to_canonical_json(good(text)) == text);
  }
}

TEST_CASE("an option of another type is refused, and has no place in the canonical text") {
  const std::string text = smallest().dump();
  CHECK(fault_of(text, {"model.hidden_sizes=[3]"}) ==
        "override model.hidden_sizes=[3]: /model/hidden_sizes: is only for the type \"mlp\"");
  CHECK(fault_of(text, {"model.dropout=0.1"}) ==
        "override model.dropout=0.1: /model/dropout: is only for the type \"mlp\" or \"gpt2\"");
  CHECK_FALSE(contains(to_canonical_json(good(text)), "hidden_sizes"));
  CHECK(good(text, {"model.type=mlp", "model.hidden_sizes=[3,4]"}).model.hidden_sizes ==
        std::vector<int>{3, 4});
  // A type that is not known is the only fault.
  CHECK_FALSE(contains(fault_of(text, {"model.type=cnn", "model.dropout=0.1"}), "dropout"));
}

// A numeric option's values on its bounds, and the nearest ones beyond.
struct Bounds {
  const char* option;
  std::vector<const char*> accepted, refused;
  std::vector<std::string> with = {};  // the values that other options must have for it
};

const std::vector<Bounds>& bounds() {
  const std::vector<const char*> fraction = {"0", "0.9999999999999999"}, no_fraction = {"-5e-324", "1"};
  const std::vector<const char*> steps = {"0", "1000000000000"}, no_steps = {"-1", "1000000000001"};
  const std::vector<std::string> min_lr = {"train.lr_scheduler_type=cosine_with_min_lr"};
  const std::vector<std::string> stable = {"train.lr_scheduler_type=warmup_stable_decay",
                                           "train.lr_scheduler_kwargs.num_decay_steps=1"};
  const std::vector<std::string> replicas = {"train.local_replicas=2"};
  static const std::vector<Bounds> all = {
      {"train.num_train_epochs", {"1", "1000000"}, {"0", "1000001"}},
      {"train.max_steps", {"-1", "1", "1000000000000"}, {"-2", "0", "1000000000001"}},
      {"train.global_batch_size", {"1", "1048576"}, {"0", "1048577"}, {"train.micro_batch_size=1"}},
      {"train.micro_batch_size", {"1", "1048576"}, {"0", "1048577"}, {"train.global_batch_size=1048576"}},
      {"train.label_smoothing_factor", fraction, no_fraction},
      {"train.learning_rate", {"5e-324", "1e6"}, {"0", "0.0", "-0.0", "-1", "1000000.0000000001"}},
      {"train.momentum", fraction, no_fraction},
      {"train.adam_beta1", fraction, no_fraction},
      {"train.adam_beta2", fraction, no_fraction},
      {"train.adam_epsilon", {"5e-324", "1"}, {"0", "1.0000000000000002"}},
      {"train.weight_decay", {"0", "1e6"}, {"-5e-324", "1000000.0000000001"}},
      {"train.max_grad_norm", {"0", "1e30"}, {"-5e-324", "1.0000000000000002e30"}},
      {"train.warmup_steps", steps, no_steps, {"train.lr_scheduler_type=linear"}},
      {"train.warmup_ratio",
       {"0", "1"},
       {"-5e-324", "1.0000000000000002"},
       {"train.lr_scheduler_type=linear"}},
      {"train.lr_scheduler_kwargs.num_cycles",
       {"5e-324", "1e6"},
       {"0", "1000000.0000000001"},
       {"train.lr_scheduler_type=cosine"}},
      {"train.lr_scheduler_kwargs.min_lr", {"0", "1e6"}, {"-5e-324", "1000000.0000000001"}, min_lr},
      {"train.lr_scheduler_kwargs.min_lr_rate", {"0", "1"}, {"-5e-324", "1.0000000000000002"}, min_lr},
      {"train.lr_scheduler_kwargs.lr_end",
       {"0", "999999.9"},
       {"-5e-324", "1000000.0000000001"},
       {"train.lr_scheduler_type=polynomial", "train.learning_rate=1e6"}},
      {"train.lr_scheduler_kwargs.power",
       {"5e-324", "1000"},
       {"0", "1000.0000000000001"},
       {"train.lr_scheduler_type=polynomial"}},
      {"train.lr_scheduler_kwargs.timescale",
       {"1", "1000000000000"},
       {"0", "1000000000001"},
       {"train.lr_scheduler_type=inverse_sqrt"}},
      {"train.lr_scheduler_kwargs.num_decay_steps", steps, no_steps, stable},
      {"train.lr_scheduler_kwargs.num_stable_steps", steps, no_steps, stable},
      {"train.lr_scheduler_kwargs.min_lr_ratio", {"0", "1"}, {"-5e-324", "1.0000000000000002"}, stable},
      {"train.distill_temperature",
       {"5e-324", "1000"},
       {"0", "1000.0000000000001"},
       {"train.distill_from=teacher"}},
      {"train.distill_alpha", {"0", "1"}, {"-5e-324", "1.0000000000000002"}, {"train.distill_from=teacher"}},
      {"train.seed", {"0", "18446744073709551615"}, {"-1", "18446744073709551616"}},
      {"train.local_replicas", {"1", "1024"}, {"0", "1025"}, {"train.global_batch_size=16384"}},
      {"train.sync_every", {"1", "1000000"}, {"0", "1000001"}, replicas},
      {"train.outer_learning_rate", {"5e-324", "10"}, {"0", "10.000000000000002"}, replicas},
      {"train.outer_momentum", fraction, no_fraction, replicas},
      {"train.batch_norm_group",
       {"0", "1048576"},
       {"-1", "1048577"},
       {"train.global_batch_size=1048576", "train.micro_batch_size=1", "model.type=resnet"}},
      {"train.verify_sync_steps", steps, no_steps},
      {"recovery.in_memory_checkpoint_steps", steps, no_steps},
      {"train.logging_steps", {"1", "1000000000000"}, {"0", "1000000000001"}},
      {"train.eval_steps", steps, no_steps},
      {"train.save_steps", steps, no_steps},
      {"train.save_total_limit", {"0", "1000000"}, {"-1", "1000001"}},
      {"train.early_stopping_patience", {"0", "1000000"}, {"-1", "1000001"}},
      {"model.channels", {"[1]", "[20,4096]"}, {"[0]", "[4097,20]"}},
      {"model.kernel_size", {"1", "31"}, {"0", "32"}},
      {"model.depths", {"[1]", "[2,100]"}, {"[0]", "[101,2]"}, {"model.type=resnet"}},
      {"model.embedding_size", {"1", "4096"}, {"0", "4097"}, {"model.type=resnet"}},
      {"model.hidden_sizes", {"[1]", "[131072]"}, {"[0]", "[131073]"}, {"model.type=mlp"}},
      {"model.n_layer", {"1", "1000"}, {"0", "1001"}, {"model.type=gpt2"}},
      {"model.n_head", {"1", "1000"}, {"0", "1001"}, {"model.type=gpt2", "model.n_embd=1000"}},
      {"model.n_embd", {"1", "131072"}, {"0", "131073"}, {"model.type=gpt2", "model.n_head=1"}},
      {"model.n_positions", {"1", "131072"}, {"0", "131073"}, {"model.type=gpt2"}},
      {"model.vocab_size", {"0", "1310720"}, {"-1", "1310721"}, {"model.type=gpt2"}},
      {"model.dropout", fraction, no_fraction, {"model.type=mlp"}},
      {"data.sequence_length", {"1", "131072"}, {"0", "131073"}, {"data.type=tokens"}},
      {"data.vocab_size", {"1", "65536"}, {"0", "65537"}, {"data.type=tokens"}},
      {"data.random_crop_padding", {"0", "1000"}, {"-1", "1001"}},
      {"data.random_horizontal_flip", {"0", "1"}, {"-0.1", "1.1"}},
      {"data.test_fraction", {"5e-324", "0.9999999999999999"}, {"0", "1"}, {"data.type=tokens"}},
      {"data.classes", {"2", "131072"}, {"1", "131073"}, {"data.type=idx"}},
      {"data.mean", {"-1e6", "1e6"}, {"-1000000.0000000001", "1000000.0000000001"}, {"data.type=idx"}},
      {"data.std", {"1e-6", "1e6"}, {"0", "9.99999999999999e-7", "1000000.0000000001"}, {"data.type=idx"}},
      {"data.image_size", {"[1,1]", "[4096,4096]"}, {"[0,1]", "[1,4097]"}, {"data.type=image_folder"}},
      {"data.channels", {"1", "3"}, {"0", "4"}, {"data.type=image_folder"}},
      {"data.resize", {"0", "16384"}, {"-1", "16385"}, {"data.type=image_folder"}},
      {"data.samples", {"2", "4294967295"}, {"1", "4294967296"}, {"data.type=synthetic"}},
      {"data.shape", {"[1,1,1]", "[1,4096,4096]"}, {"[1,1,0]", "[4097,1,1]"}, {"data.type=synthetic"}},
      {"data.seed", {"0", "18446744073709551615"}, {"-1", "18446744073709551616"}, {"data.type=synthetic"}},
      {"launch.nproc_per_node", {"1", "999999"}, {"0", "1000000"}},
      {"launch.nnodes", {"1", "999999", "1:1", "7:7"}, {"0", "1000000", "0:1", "8:7", "1:1000000"}},
      {"launch.max_restarts", {"0", "1000000"}, {"-1", "1000001"}},
      {"launch.lanes", {"1", "999999"}, {"0", "1000000"}},
  };
  return all;
}

TEST_CASE("a number on either bound of its option is taken if the bound is, and one beyond never is") {
  for (const Bounds& b : bounds()) {
    const std::string text = smallest_for(b.with);
    auto with = [&](const char* value) {
      std::vector<std::string> overrides = b.with;
      overrides.push_back(std::string(b.option) + "=" + value);
      return overrides;
    };
    for (const char* value : b.accepted) {
      CAPTURE(with(value).back());
      CHECK(fault_of(text, with(value)) == "accepted");
    }
    for (const char* value : b.refused) {
      const std::string fault = fault_of(text, with(value));
      CHECK_MESSAGE(fault.starts_with("override " + with(value).back() + ": /"), fault);
      CHECK_MESSAGE((contains(fault, " is out of ") || contains(fault, " is not understood")), fault);
    }
  }
}

TEST_CASE("no option that takes a number is missing among the bounds") {
  for (const Option& option : config_options()) {
    JobConfig config;
    const FieldRef field = option.field(config);
    const bool word = std::holds_alternative<std::string*>(field) || std::holds_alternative<bool*>(field) ||
                      std::holds_alternative<ChoiceRef>(field) ||
                      std::holds_alternative<ResumeFrom*>(field) ||
                      std::holds_alternative<std::vector<Layer>*>(field) ||  // layers_test.cc
                      (std::holds_alternative<std::optional<std::string>*>(field) && !option.integer_too) ||
                      std::holds_alternative<std::optional<bool>*>(field);
    const std::string name = path_of(option);
    CAPTURE(name);
    CHECK(word != std::ranges::any_of(bounds(), [&](const Bounds& b) { return b.option == name; }));
  }
}

TEST_CASE("a spelling's check and its pattern in the schema agree") {
  for (const Option& option : config_options()) {
    if (!option.spelling.accepts) continue;
    regex_t pattern;
    REQUIRE(regcomp(&pattern, std::string(option.spelling.pattern).c_str(), REG_EXTENDED | REG_NOSUB) == 0);
    for (const char* text : {"1", "0", "02", "12", "123456", "1234567", "auto", "cpu", "gpu", "1:4",
                             "1:", ":1", "", "-1", "1 ", "AUTO"}) {
      CAPTURE(option.pointer);
      CAPTURE(text);
      CHECK(option.spelling.accepts(text) == (regexec(&pattern, text, 0, nullptr, 0) == 0));
    }
    regfree(&pattern);
  }
}

TEST_CASE("the schema has each option and no other, asks for what must be given, and knows types") {
  const auto schema = nlohmann::json::parse(config_json_schema());
  for (const Option& option : config_options()) {
    CAPTURE(option.pointer);
    const nlohmann::json* at = &schema;
    std::istringstream tokens{std::string(option.pointer.substr(1))};
    for (std::string token; std::getline(tokens, token, '/');) {
      CHECK(at->at("additionalProperties") == false);
      at = &at->at("properties").at(token);
    }
    CHECK(at->at("description") == option.description);
  }
  CHECK(schema["required"] == nlohmann::json{"output_dir", "model", "data"});
  CHECK(schema["properties"]["data"]["required"] == nlohmann::json{"type"});
  CHECK(schema["properties"]["model"]["allOf"][0] == nlohmann::json::parse(R"({
    "if": {"properties": {"type": {"enum": ["layers"]}}},
    "then": {"required": ["layers"]}, "else": {"properties": {"layers": false}}})"));
  CHECK(schema["properties"]["train"]["allOf"][1] == nlohmann::json::parse(R"({
    "if": {"properties": {"lr_scheduler_type": {"enum": ["cosine_with_min_lr"]}}},
    "else": {"properties": {"lr_scheduler_kwargs": {"properties": {"min_lr": false}}}}})"));
}

}  // namespace
}  // namespace dtrun::worker::options_test
