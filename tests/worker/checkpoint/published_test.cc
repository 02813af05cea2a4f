#include "worker/checkpoint/published.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/worker/checkpoint/program_example.h"
#include "worker/base/error.h"
#include "worker/checkpoint/safetensors.h"

namespace dtrun::worker::published_test {
namespace {

using dtrun::test::contains;
using dtrun::test::Folder;
using dtrun::test::write_text;

struct Written {
  std::string name, type, shape;
  std::string bytes;
};

// A safetensors file, as any program may write it.
std::string file_of(const std::vector<Written>& tensors) {
  std::string header, data;
  for (const auto& [name, type, shape, bytes] : tensors) {
    header += (header.empty() ? "{\"" : ",\"") + name + R"(":{"dtype":")" + type + R"(","shape":)" + shape +
              R"(,"data_offsets":[)" + std::to_string(data.size()) + "," +
              std::to_string(data.size() + bytes.size()) + "]}";
    data += bytes;
  }
  header += "}";
  const std::uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof size) + header + data;
}

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// The values of a tensor of published_weights().
std::vector<float> values_in(const std::string& content, const std::string& name) {
  const auto parsed = parse_safetensors(content);
  REQUIRE_MESSAGE(parsed.ok(), parsed.status().message());
  for (const Tensor& tensor : parsed.value().tensors) {
    if (tensor.name != name) continue;
    std::vector<float> values(tensor.size);
    copy_values(parsed.value(), tensor, values.data());
    return values;
  }
  return {};
}

std::string weights_in(const std::filesystem::path& from) {
  const auto content = published_weights(from);
  REQUIRE_MESSAGE(content.ok(), content.status().message());
  return content.value();
}

std::string fault_of(const std::filesystem::path& from) {
  const auto content = published_weights(from);
  if (content.ok()) return "accepted";
  CHECK(content.status().exit_code() == kExitNoInput);
  return content.status().message();
}

std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

TEST_CASE("half precision is widened to the very value") {
  const Folder folder;
  const std::vector<std::uint16_t> halves = {0x0000, 0x8000, 0x0001, 0x83ff, 0x0400, 0x3c00,
                                             0xc000, 0x3555, 0x7bff, 0x7c00, 0xfc00, 0x7e00};
  const std::vector<std::uint16_t> bfloats = {0x0000, 0x8000, 0x0001, 0x3f80, 0xc000, 0x7f7f, 0x7f80, 0x7fc0};
  write_text(folder / "model.safetensors", file_of({{"b", "BF16", "[2,4]", bytes_of(bfloats)},
                                                    {"f", "F32", "[1]", bytes_of<float>({0.1f})},
                                                    {"h", "F16", "[12]", bytes_of(halves)}}));
  const std::string content = weights_in(folder.path());
  const std::vector<float> of_half = {0.0f,
                                      -0.0f,
                                      0x1p-24f,
                                      -1023 * 0x1p-24f,
                                      0x1p-14f,
                                      1.0f,
                                      -2.0f,
                                      1365 * 0x1p-12f,
                                      65504.0f,
                                      std::numeric_limits<float>::infinity(),
                                      -std::numeric_limits<float>::infinity(),
                                      std::numeric_limits<float>::quiet_NaN()};
  CHECK(bits_of(values_in(content, "h")) == bits_of(of_half));
  const std::vector<float> of_bfloat = {0.0f, -0.0f, 0x1p-133f, 1.0f, -2.0f, 0x1.fep127f, INFINITY, NAN};
  CHECK(bits_of(values_in(content, "b")) == bits_of(of_bfloat));
  CHECK(values_in(content, "f") == std::vector<float>{0.1f});
  CHECK(weights_in(folder / "model.safetensors") == content);  // the file itself may be named
}

TEST_CASE("masks and counters are left out, other floating-point numbers are refused by name") {
  const Folder folder;
  const auto path = folder / "model.safetensors";
  write_text(path, file_of({{"h.0.attn.bias", "BOOL", "[3]", "abc"},
                            {"h.1.attn.bias", "U8", "[1]", "a"},
                            {"n.num_batches_tracked", "I64", "[]", std::string(8, '\0')},
                            {"w", "F32", "[1]", bytes_of<float>({2})}}));
  const std::string content = weights_in(path);
  CHECK(parse_safetensors(content).value().tensors.size() == 1);
  CHECK(values_in(content, "w") == std::vector<float>{2});
  for (const auto& [type, size] : {std::pair{"F64", 8}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"C64", 8}}) {
    write_text(path, file_of({{"w", type, "[1]", std::string(static_cast<std::size_t>(size), 'x')}}));
    CHECK(fault_of(path) ==
          path.string() + ": tensor \"w\" has dtype \"" + type + "\", wanted \"F32\", \"F16\" or \"BF16\"");
  }
}

TEST_CASE("shards that an index names are one model, and model.safetensors comes before an index") {
  const Folder folder;
  write_text(folder / "model-1.safetensors", file_of({{"a", "F32", "[1]", bytes_of<float>({1})}}));
  write_text(folder / "model-2.safetensors",
             file_of({{"b", "F16", "[1]", bytes_of<std::uint16_t>({0x4000})}}));
  const auto index = folder / "model.safetensors.index.json";
  write_text(index, R"({"metadata": {"total_size": 6}, "weight_map":
      {"b": "model-2.safetensors", "a": "model-1.safetensors", "c": "model-1.safetensors"}})");
  const std::string both = weights_in(folder.path());
  CHECK(values_in(both, "a") == std::vector<float>{1});
  CHECK(values_in(both, "b") == std::vector<float>{2});
  write_text(folder / "model.safetensors", file_of({{"a", "F32", "[1]", bytes_of<float>({7})}}));
  CHECK(values_in(weights_in(folder.path()), "a") == std::vector<float>{7});
  std::filesystem::remove(folder / "model.safetensors");

  write_text(folder / "model-2.safetensors", file_of({{"a", "F32", "[1]", bytes_of<float>({1})}}));
  CHECK(contains(fault_of(folder.path()), "model-2.safetensors: tensor \"a\" is in another file, too"));
  std::filesystem::remove(folder / "model-2.safetensors");
  CHECK(contains(fault_of(folder.path()), "model-2.safetensors: is missing"));
}

TEST_CASE("an index that is none, or leads elsewhere, is named") {
  const Folder folder;
  const auto index = folder / "model.safetensors.index.json";
  const auto fault = [&](const std::string& text) {
    write_text(index, text);
    const std::string message = fault_of(folder.path());
    CHECK(message.starts_with(index.string() + ": "));
    return message.substr(std::min(message.size(), index.string().size() + 2));
  };
  for (const char* none : {"", "[]", "{}", R"({"weight_map": {}})", R"({"weight_map": "x"})"})
    CHECK(fault(none) == "has no \"weight_map\"");
  CHECK(fault(R"({"weight_map": {"a": 1}})") ==
        "has something else than names of files in its \"weight_map\"");
  for (const char* name : {"../model.safetensors", "/etc/passwd", "..", "", "a/b"})
    CHECK(fault(R"({"weight_map": {"a": ")" + std::string(name) + "\"}}") ==
          std::string("names a file that is not beside it: ") + name);
}

TEST_CASE("what lies there instead of weights is named") {
  const Folder folder;
  CHECK(contains(fault_of(folder / "no"), "/no: is missing"));
  CHECK(contains(fault_of(folder.path()), "/model.safetensors: is missing"));
  write_text(folder / "pytorch_model.bin", "PK");
  CHECK(contains(fault_of(folder.path()),
                 " has only pytorch_model.bin, which is a pickle: transformers' "
                 "save_pretrained() writes model.safetensors"));
  const auto path = folder / "model.safetensors";
  write_text(path, "version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 548105171\n");
  CHECK(fault_of(folder.path()) == path.string() +
                                       ": is a Git LFS pointer, not the file that it stands for: "
                                       "git lfs pull fetches that");
  write_text(path, "<!DOCTYPE html><html>Access denied</html>");
  CHECK(contains(fault_of(folder.path()),
                 ": is a page of HTML, not a safetensors file: was its download refused?"));
}

// ---- as a run begins with them

std::string good_file(const std::string& head = "[3,2]", std::size_t head_values = 6) {
  return file_of({{"conv1.bias", "F32", "[2]", bytes_of<float>({1, 2})},
                  {"conv1.weight", "F32", "[2,1,2,2]", bytes_of(std::vector<float>(8, 3))},
                  {"fc.weight", "F32", head, bytes_of(std::vector<float>(head_values, 4))}});
}

struct Begun {
  std::vector<float> flat;
  std::vector<std::string> told;
  std::string fault = "";
};

Begun begin_with(const std::string& content, bool ignore) {
  const Folder folder;
  write_text(folder / "w.safetensors", content);
  Begun begun;
  TrainConfig train;
  train.init_from = (folder / "w.safetensors").string();
  train.ignore_mismatched_sizes = ignore;
  try {
    begun.flat = load_initial_parameters(train, kProgram, [&](const std::string& notice) {
      begun.told.push_back(notice.substr(train.init_from->size()));
    });
  } catch (const WorkerError& error) {
    CHECK(error.exit_code() == kExitConfig);
    begun.fault = error.what();
  }
  return begun;
}

TEST_CASE("a run begins with tensors of the same names and shapes") {
  const Begun begun = begin_with(good_file(), false);
  CHECK(begun.fault == "");
  CHECK(begun.told.empty());
  CHECK(begun.flat == std::vector<float>{3, 3, 3, 3, 3, 3, 3, 3, 1, 2, 4, 4, 4, 4, 4, 4});
}

TEST_CASE("a layer of another size begins anew if that is asked for, and is told; else the key is named") {
  const std::string other = good_file("[1000,2]", 2000);
  const Begun refused = begin_with(other, false);
  CHECK_MESSAGE(contains(refused.fault, "tensor \"fc.weight\" has shape [1000,2], this model needs [3,2]"),
                refused.fault);
  CHECK(contains(refused.fault, "to begin such tensors anew, set train.ignore_mismatched_sizes"));
  const Begun begun = begin_with(other, true);
  CHECK(begun.fault == "");
  REQUIRE(begun.told.size() == 1);
  CHECK_MESSAGE(
      contains(begun.told[0], "\"fc.weight\" has shape [1000,2], this model needs [3,2]: it begins anew"),
      begun.told[0]);
  CHECK(std::vector<float>(begun.flat.begin(), begun.flat.begin() + 10) ==
        std::vector<float>{3, 3, 3, 3, 3, 3, 3, 3, 1, 2});
  CHECK(begun.flat[10] != 4);
  const Begun nothing = begin_with(file_of({{"x", "F32", "[1]", bytes_of<float>({1})}}), true);
  CHECK_MESSAGE(contains(nothing.fault, "nothing of it fits; it is of another model"), nothing.fault);
}

TEST_CASE("tensors that nothing takes are told, but for what is no weight; a head of its own is refused") {
  const auto with = [](const std::string& name, float value) {
    std::string file = good_file();
    return begin_with(file_of({{"conv1.bias", "F32", "[2]", bytes_of<float>({1, 2})},
                               {"conv1.weight", "F32", "[2,1,2,2]", bytes_of(std::vector<float>(8, 3))},
                               {"fc.weight", "F32", "[3,2]", bytes_of(std::vector<float>(6, 4))},
                               {name, "F32", "[1]", bytes_of<float>({value})},
                               {"wte.weight", "F32", "[1]", bytes_of<float>({5})}}),
                      false);
  };
  const std::vector<std::string> extra = with("h.7.mlp.c_fc.weight", 5).told;
  REQUIRE(extra.size() == 1);
  CHECK_MESSAGE(contains(extra[0], "2 of its tensors are not used: h.7.mlp.c_fc.weight, wte.weight"),
                extra[0]);
  for (const char* none : {"h.0.attn.bias", "h.0.attn.masked_bias", "bn1.num_batches_tracked"})
    CHECK(contains(with(none, 1).told.at(0), "1 of its tensors are not used: wte.weight"));
  CHECK(with("lm_head.weight", 5).fault == "");
  CHECK(contains(with("lm_head.weight", 6).fault, "has a lm_head.weight of its own"));
}

}  // namespace
}  // namespace dtrun::worker::published_test
