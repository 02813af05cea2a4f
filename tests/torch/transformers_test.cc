// Hugging Face's transformers reads what `dtrun export` writes, and computes the same.
#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/e2e/training.h"
#include "tests/torch/torch_jobs.h"
#include "worker/tokenizer/load.h"

namespace dtrun::transformers_test {

using namespace dtrun::test;

namespace {

using Json = nlohmann::json;

// Text that has something to learn: each token follows from the two before it, but for some noise.
std::string tokens(int count, unsigned seed) {
  std::string bytes;
  unsigned a = 1, b = 2, noise = seed;
  for (int i = 0; i < count; ++i) {
    noise = noise * 1664525 + 1013904223;
    const unsigned next = (a * 3 + b * 5 + (noise >> 24 < 32 ? noise >> 16 : 0)) % 50;
    bytes += static_cast<char>(next);
    bytes += '\0';
    a = b, b = next;
  }
  return bytes;
}

}  // namespace

TEST_CASE("transformers finds the same loss in an exported GPT-2") {
  if (const std::string why = why_no_torch_with("transformers"); !why.empty()) return skip(why);
  const std::string python = python_with_torch();
  const Folder folder;
  std::filesystem::create_directories(folder / "data");
  write_text(folder / "data/train.bin", tokens(20000, 1));
  write_text(folder / "data/val.bin", tokens(3001, 2));
  const Json config{
      {"output_dir", (folder / "out").string()},
      {"model", {{"type", "gpt2"}, {"n_layer", 3}, {"n_head", 4}, {"n_embd", 64}, {"n_positions", 40}}},
      {"data",
       {{"type", "tokens"},
        {"path", (folder / "data").string()},
        {"vocab_size", 50},
        {"sequence_length", 30}}},
      {"train",
       {{"max_steps", 150}, {"global_batch_size", 16}, {"optim", "adamw"}, {"learning_rate", 0.003}}}};
  write_text(folder / "job.json", config.dump());
  Process trained({kDtrun, "--standalone", "--nproc_per_node", "2", (folder / "job.json").string()});
  REQUIRE_MESSAGE(trained.wait(kLong) == 0, trained.err());
  Process exported({kDtrun, "export", (folder / "out").string(), (folder / "hub").string()});
  REQUIRE_MESSAGE(exported.wait(kLong) == 0, exported.err());
  Process theirs({python, kScripts + "gpt2_loss.py", (folder / "hub").string(),
                  (folder / "data/val.bin").string(), "30"},
                 {"OMP_NUM_THREADS=1", "HF_HUB_OFFLINE=1"});
  REQUIRE_MESSAGE(theirs.wait(kLong) == 0, theirs.err());
  const std::string metrics = read_text(folder / "out/metrics.jsonl");
  const std::size_t at = metrics.rfind("{\"event\":\"eval\"");
  REQUIRE(at != std::string::npos);
  const double ours = Json::parse(metrics.substr(at, metrics.find('\n', at) - at))["loss"];
  CHECK(std::abs(std::stod(theirs.out().substr(theirs.out().find("loss ") + 5)) - ours) < 1e-5);
  CHECK(ours < 3);  // at random it is log(50), 3.9

  // Quantized, PyPI's gguf reads what it would have made of the weights itself.
  if (const std::string why = why_no_torch_with("gguf, accelerate"); !why.empty()) return skip(why);
  std::vector<std::string> compare{python, kScripts + "quantized.py",
                                   (folder / "out/model.safetensors").string()};
  for (const std::string how : {"q8_0", "q4_0"}) {
    CAPTURE(how);
    compare.push_back(folder / how);
    Process quantized(
        {kDtrun, "export", (folder / "out").string(), compare.back(), "--quantize", how, "--evaluate"});
    REQUIRE_MESSAGE(quantized.wait(kLong) == 0, quantized.err());
    const auto loss_of = [&](const std::string& line) {
      const std::size_t at = quantized.out().find(line + ": test loss ");
      REQUIRE_MESSAGE(at != std::string::npos, quantized.out());
      return std::stod(quantized.out().substr(at + line.size() + 12));
    };
    const bool fine = how == "q8_0";
    CHECK(std::abs(loss_of("fp32") - ours) < 1e-4);
    CHECK(std::abs(loss_of(how) - ours) < (fine ? 0.002 : 0.1));
    CHECK((fine || loss_of(how) != loss_of("fp32")));
  }
  Process compared(compare, {"OMP_NUM_THREADS=1", "HF_HUB_OFFLINE=1"});
  REQUIRE_MESSAGE(compared.wait(kLong) == 0, compared.err());
  const std::string out = compared.out();
  int equal = 0;
  for (std::size_t at = 0; (at = out.find("differs by ", at)) != std::string::npos; ++at, ++equal)
    CHECK_MESSAGE(std::stod(out.substr(at + 11)) < 1e-5, out);
  CHECK(equal == 2);
}

TEST_CASE("transformers loads the tokenizer that goes with an exported GPT-2, and it is the run's") {
  if (const std::string why = why_no_torch_with("transformers"); !why.empty()) return skip(why);
  const std::string python = python_with_torch();
  const Folder folder;
  const std::filesystem::path fixture = DTRUN_SOURCE_DIR "/tests/worker/tokenizer/fixture";
  // GPT-2's own files, and the one of today.
  const Json whole = Json::parse(read_text(fixture / "tokenizer.json"));
  std::filesystem::create_directories(folder / "files");
  write_text(folder / "files/vocab.json", whole["model"]["vocab"].dump());
  std::string merges = "#version: 0.2\n";
  for (const Json& pair : whole["model"]["merges"])
    merges += pair[0].get<std::string>() + " " + pair[1].get<std::string>() + "\n";
  write_text(folder / "files/merges.txt", merges);
  const std::string text = "It's the end of 1,234 Wörter, isn't it?\n\n  中文 <|endoftext|>";
  for (const std::filesystem::path& tokenizer : {fixture, folder / "files"}) {
    const std::string name = tokenizer.filename().string();
    CAPTURE(name);
    const Json config{
        {"output_dir", (folder / (name + "_out")).string()},
        {"model", {{"type", "gpt2"}, {"n_layer", 1}, {"n_head", 1}, {"n_embd", 16}, {"n_positions", 16}}},
        {"data",
         {{"type", "text"},
          {"path", DTRUN_SOURCE_DIR "/docs/data.md"},
          {"tokenizer", tokenizer.string()},
          {"sequence_length", 16}}},
        {"train", {{"max_steps", 2}, {"optim", "adamw"}}}};
    write_text(folder / "job.json", config.dump());
    Process trained({kDtrun, "--standalone", (folder / "job.json").string()});
    REQUIRE_MESSAGE(trained.wait(kLong) == 0, trained.err());
    const std::string hub = (folder / (name + "_hub")).string();
    Process exported({kDtrun, "export", (folder / (name + "_out")).string(), hub});
    REQUIRE_MESSAGE(exported.wait(kLong) == 0, exported.err());
    Process theirs({python, kScripts + "tokenizer_reads.py", hub, text}, {"HF_HUB_OFFLINE=1"});
    REQUIRE_MESSAGE(theirs.wait(kLong) == 0, theirs.err());
    const auto loaded = dtrun::worker::load_tokenizer(tokenizer);
    REQUIRE(loaded.ok());
    std::vector<std::int32_t> ids;
    dtrun::worker::Encoder(*loaded.value().tokenizer).encode(text, true, ids);
    std::string wanted = "ids";
    for (const std::int32_t id : ids) wanted += " " + std::to_string(id);
    const std::string out = theirs.out();
    const std::size_t first = out.find(wanted + "\n");
    REQUIRE_MESSAGE(first != std::string::npos, out);
    CHECK_MESSAGE(out.find(wanted + "\n", first + 1) != std::string::npos, out);  // both kinds
    CHECK_MESSAGE(contains(out, " <|endoftext|> 0 16\n"), out);
  }
}

}  // namespace dtrun::transformers_test
