#include "worker/checkpoint/trained_model.h"

#include <doctest/doctest.h>

#include "tests/support/files.h"
#include "tests/support/folder.h"

namespace dtrun::worker::trained_model_test {
namespace {

using dtrun::test::contains;
using dtrun::test::Folder;
using dtrun::test::write_text;

// A model of transformers beside its config.json, and a job that begins with it.
class Begins {
 public:
  Begins() {
    write_text(folder_ / "model.safetensors", "weights");
    config_.train.init_from = folder_.path().string();
    config_.model = {.type = ModelType::kGpt2, .n_layer = 2, .n_head = 4, .n_embd = 32, .n_positions = 32};
  }
  // What is said of that config.json; empty: accepted.
  std::string with(const std::string& more, const std::string& type = "gpt2") {
    write_text(folder_ / "config.json", R"({"model_type": ")" + type + R"(", "n_layer": 2, "n_head": 4,
      "n_embd": 32, "n_positions": 32, "vocab_size": 61)" +
                                            more + "}");
    return said();
  }
  std::string said() const {
    const Status status = check_init(config_);
    if (!status.ok()) CHECK(status.message().starts_with("/train/init_from: "));
    return status.ok() ? "" : status.message();
  }
  JobConfig& config() { return config_; }
  const Folder& folder() const { return folder_; }

 private:
  const Folder folder_;
  JobConfig config_;
};

TEST_CASE("a GPT-2 of transformers that computes what ours does may be begun with") {
  Begins begins;
  CHECK(begins.with("") == "");
  CHECK(begins.with(R"(, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "n_inner": null,
      "tie_word_embeddings": true, "architectures": ["GPT2LMHeadModel"])") == "");
  CHECK(begins.with(R"(, "n_inner": 128)") == "");
  begins.config().train.init_from = (begins.folder() / "model.safetensors").string();
  CHECK(begins.with("") == "");
}

TEST_CASE("one of another function is refused by the key that makes it one, though shapes may be the same") {
  Begins begins;
  for (const auto& [key, value] : {std::pair{"activation_function", "\"relu\""},
                                   {"activation_function", "\"gelu\""},
                                   {"layer_norm_epsilon", "0.01"},
                                   {"scale_attn_by_inverse_layer_idx", "true"},
                                   {"scale_attn_weights", "false"},
                                   {"tie_word_embeddings", "false"},
                                   {"n_inner", "64"}}) {
    const std::string said = begins.with(std::string(", \"") + key + "\": " + value);
    CHECK_MESSAGE(contains(said, std::string("its \"") + key + "\" is " + value), said);
  }
  begins.config().model.n_head = 8;
  CHECK(contains(begins.with(""), "config.json: its n_head is 4, and that of the model to train 8"));
  begins.config().model.n_head = 4, begins.config().model.n_layer = 3;
  CHECK(contains(begins.with(""), "its n_layer is 2, and that of the model to train 3"));
  CHECK(contains(begins.with("", "gpt_neo"), "is not the config of a GPT-2"));
}

TEST_CASE("a run of ours may be begun with if its model is of the same type and sizes") {
  Begins begins;
  const auto of_run = [&](const std::string& model) {
    write_text(begins.folder() / "config.json",
               R"({"output_dir": "x", "model": )" + model +
                   R"(, "data": {"type": "text", "path": "t"}, "train": {}})");
    return begins.said();
  };
  CHECK(of_run(R"({"type": "gpt2", "n_layer": 2, "n_head": 4, "n_embd": 32})") == "");
  CHECK(contains(of_run(R"({"type": "gpt2", "n_layer": 2, "n_head": 2, "n_embd": 32})"), "its n_head is 2"));
  CHECK(contains(of_run(R"({"type": "mlp"})"), "is the config of another type of model"));
}

TEST_CASE("the config of a program that is neither leaves it to the shapes") {
  Begins begins;
  write_text(begins.folder() / "config.json", R"({"architecture": "resnet18", "num_classes": 1000})");
  CHECK(begins.said() == "");
  begins.config().model = {.type = ModelType::kResnet};
  CHECK(begins.with("", "resnet") == "");
}

TEST_CASE("what is not there is told with the way to it; without a config.json the shapes must tell") {
  Begins begins;
  CHECK(begins.said() == "");
  begins.config().train.init_from = "gpt2";
  CHECK(contains(begins.said(),
                 "gpt2 is not there: name a model.safetensors, or a directory that has one on this "
                 "machine; models of the hub are fetched with `hf download`"));
  CHECK(check_init(begins.config()).exit_code() == kExitNoInput);
  begins.config().train.init_from.reset();
  CHECK(begins.said() == "");
}

}  // namespace
}  // namespace dtrun::worker::trained_model_test
