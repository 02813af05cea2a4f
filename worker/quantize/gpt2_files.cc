#include "worker/quantize/gpt2_files.h"

#include <algorithm>
#include <utility>

#include "proto/json/json.h"
#include "worker/model/hub.h"
#include "worker/quantize/gguf.h"
#include "worker/quantize/matrices.h"
#include "worker/tokenizer/byte_alphabet.h"

namespace dtrun::worker {
namespace {

std::string bytes_of(const auto& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0])};
}

// "h.3.attn.c_attn.weight": block "3", layer "attn.c_attn", kind ".weight". Outside of blocks "".
struct NameParts {
  std::string block, layer, kind;
};
NameParts parts_of(const std::string& name) {
  const std::size_t end = name.rfind('.');
  if (!name.starts_with("h.")) return {.block = "", .layer = name.substr(0, end), .kind = name.substr(end)};
  const std::size_t dot = name.find('.', 2);
  return {.block = name.substr(2, dot - 2),
          .layer = name.substr(dot + 1, end - dot - 1),
          .kind = name.substr(end)};
}

std::string renamed(std::span<const std::pair<std::string_view, std::string_view>> names,
                    const std::string& layer) {
  return std::string(std::ranges::find(names, layer, [](const auto& pair) { return pair.first; })->second);
}

std::string gguf_name(const std::string& name) {
  static constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"wte", "token_embd"}, {"wpe", "position_embd"},    {"ln_f", "output_norm"},
      {"ln_1", "attn_norm"}, {"attn.c_attn", "attn_qkv"}, {"attn.c_proj", "attn_output"},
      {"ln_2", "ffn_norm"},  {"mlp.c_fc", "ffn_up"},      {"mlp.c_proj", "ffn_down"}};
  const auto [block, layer, kind] = parts_of(name);
  return (block.empty() ? "" : "blk." + block + ".") + renamed(kNames, layer) + kind;
}

std::vector<float> values_of(const Parameter& parameter, const std::vector<float>& flat) {
  return {flat.data() + parameter.offset, flat.data() + parameter.offset + parameter.size};
}

// llama.cpp's vocabulary: a name and a kind for each id.
void add_vocabulary(GgufKeys& keys, int size, const Tokenizer* tokenizer) {
  constexpr std::int32_t kNormal = 1, kControl = 3, kUnused = 5;
  std::vector<std::string> tokens, merges;
  std::vector<std::int32_t> kinds;
  for (int id = 0; id < size; ++id) {
    std::string bytes(tokenizer != nullptr ? tokenizer->bytes_of(id)
                      : size == 256        ? std::string(1, static_cast<char>(id))
                                           : "");
    kinds.push_back(bytes.empty() ? kUnused : kNormal);
    tokens.push_back(bytes.empty() ? "[PAD" + std::to_string(id) + "]" : letters_of_bytes(bytes));
  }
  std::optional<std::int32_t> end;
  const char* words = "gpt-2";
  if (tokenizer != nullptr) {
    const TokenizerSpec& spec = tokenizer->spec();
    for (const AddedToken& added : spec.added)
      if (added.id < size)
        tokens[added.id] = added.content, kinds[added.id] = added.special ? kControl : kNormal;
    for (const Merge& merge : spec.merges)
      merges.push_back(letters_of_bytes(tokenizer->bytes_of(merge.left)) + " " +
                       letters_of_bytes(tokenizer->bytes_of(merge.right)));
    words = spec.words == Words::kLlama3 ? "llama-bpe" : spec.words == Words::kQwen2 ? "qwen2" : words;
    end = tokenizer->id_of(kEndOfText);
  }
  keys.emplace_back("tokenizer.ggml.model", std::string("gpt2"));
  keys.emplace_back("tokenizer.ggml.pre", std::string(words));
  keys.emplace_back("tokenizer.ggml.tokens", std::move(tokens));
  keys.emplace_back("tokenizer.ggml.token_type", std::move(kinds));
  if (merges.empty())
    merges.emplace_back("  ");  // readers want the list, and an empty one has no type for them
  keys.emplace_back("tokenizer.ggml.merges", std::move(merges));
  if (end) {
    keys.emplace_back("tokenizer.ggml.bos_token_id", static_cast<std::uint32_t>(*end));
    keys.emplace_back("tokenizer.ggml.eos_token_id", static_cast<std::uint32_t>(*end));
  }
}

// "h.3.mlp.c_fc.weight" -> "model.decoder.layers.3.fc1.weight"; a layer of GPT-2's that is three of OPT's,
// one behind the other, has three names.
std::vector<std::string> opt_names(const std::string& name) {
  const auto [block, layer, kind] = parts_of(name);
  const std::string before = "model.decoder." + (block.empty() ? "" : "layers." + block + ".");
  if (layer == "attn.c_attn")
    return {before + "self_attn.q_proj" + kind, before + "self_attn.k_proj" + kind,
            before + "self_attn.v_proj" + kind};
  static constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"wte", "embed_tokens"},
      {"wpe", "embed_positions"},
      {"ln_f", "final_layer_norm"},
      {"ln_1", "self_attn_layer_norm"},
      {"attn.c_proj", "self_attn.out_proj"},
      {"ln_2", "final_layer_norm"},
      {"mlp.c_fc", "fc1"},
      {"mlp.c_proj", "fc2"}};
  return {before + renamed(kNames, layer) + kind};
}

// A safetensors file of several types.
class PackedTensors {
 public:
  // The parts of a parameter, equally long. OPT leaves two rows of positions free at the beginning.
  void add_floats(const std::vector<std::string>& names, const Parameter& parameter,
                  const std::vector<float>& flat) {
    std::vector<std::size_t> shape{parameter.shape.begin(), parameter.shape.end()};
    std::string bytes = bytes_of(values_of(parameter, flat));
    if (parameter.name == "wpe.weight") {
      shape[0] += 2;
      bytes.insert(0, 2 * shape[1] * sizeof(float), '\0');
    }
    shape[0] /= names.size();
    const std::size_t each = bytes.size() / names.size();
    for (std::size_t i = 0; i < names.size(); ++i) add(names[i], "F32", shape, bytes.substr(i * each, each));
  }
  void add_matrices(const std::vector<std::string>& names, Quantization how, std::span<const float> rows,
                    std::size_t columns) {
    const std::size_t each = rows.size() / names.size(), height = each / columns;
    for (std::size_t i = 0; i < names.size(); ++i) {
      const Quantized weights = quantize(how, rows.subspan(i * each, each), columns);
      const std::vector<std::uint32_t> words = packed_words(how, weights, columns);
      add(names[i] + "_packed", "I32", {height, words.size() / height}, bytes_of(words));
      add(names[i] + "_scale", "F32", {height, weights.scales.size() / height}, bytes_of(weights.scales));
      add(names[i] + "_shape", "I64", {2}, bytes_of(std::vector<std::uint64_t>{height, columns}));
    }
  }
  std::string file() const {
    std::string text = json_text(header_);
    text.resize((text.size() + 7) / 8 * 8, ' ');
    std::string size;
    for (int i = 0; i < 8; ++i) size += static_cast<char>(text.size() >> (8 * i));
    return size + text + data_;
  }

 private:
  void add(const std::string& name, const char* type, const std::vector<std::size_t>& shape,
           const std::string& bytes) {
    header_[name] = {
        {"dtype", type}, {"shape", shape}, {"data_offsets", {data_.size(), data_.size() + bytes.size()}}};
    data_ += bytes;
  }

  Json header_ = {{"__metadata__", {{"format", "pt"}}}};
  std::string data_;
};

Json opt_config(const ModelConfig& shape, const Json& hub, Quantization how) {
  Json config = parse_json(R"({
    "architectures": ["OPTForCausalLM"], "model_type": "opt", "activation_function": "gelu_new",
    "do_layer_norm_before": true, "enable_bias": true, "attention_dropout": 0.0, "pad_token_id": null,
    "tie_word_embeddings": true, "torch_dtype": "float32",
    "quantization_config": {
      "quant_method": "compressed-tensors", "format": "pack-quantized", "quantization_status": "compressed",
      "ignore": ["lm_head"],
      "config_groups": {"group_0": {"targets": ["Linear"], "weights": {
        "num_bits": 8, "type": "int", "symmetric": true, "strategy": "channel", "group_size": null,
        "dynamic": false}}}}})");
  for (const auto& [name, size] : {std::pair{"vocab_size", shape.vocab_size},
                                   {"max_position_embeddings", shape.n_positions},
                                   {"hidden_size", shape.n_embd},
                                   {"word_embed_proj_dim", shape.n_embd},
                                   {"ffn_dim", 4 * shape.n_embd},
                                   {"num_hidden_layers", shape.n_layer},
                                   {"num_attention_heads", shape.n_head}})
    config[name] = size;
  for (const auto& [name, of_gpt2] : {std::pair{"dropout", "resid_pdrop"},
                                      {"bos_token_id", "bos_token_id"},
                                      {"eos_token_id", "eos_token_id"}})
    config[name] = hub.value(of_gpt2, Json());
  if (how == Quantization::kInt4) {
    Json& weights = config["quantization_config"]["config_groups"]["group_0"]["weights"];
    weights["num_bits"] = 4;
    weights["strategy"] = "group";
    weights["group_size"] = block_of(how, 0);
  }
  return config;
}

}  // namespace

Status check_blocks(const Program& program, Quantization how) {
  for (const QuantizedMatrix& matrix : quantized_matrices(program, how)) {
    const std::size_t block = block_of(how, matrix.columns);
    if (matrix.columns % block == 0) continue;
    return Status(kExitConfig, std::string(kNamesOfQuantization[static_cast<std::size_t>(how)]) +
                                   " has blocks of " + std::to_string(block) + " weights, and " +
                                   program.parameters[matrix.parameter].name + " has rows of " +
                                   std::to_string(matrix.columns) +
                                   ": choose int8, or train a model whose n_embd is a multiple of " +
                                   std::to_string(block));
  }
  return {};
}

std::string gpt2_gguf(const ModelConfig& shape, const std::vector<float>& flat,
                      std::optional<Quantization> how, const Tokenizer* tokenizer) {
  const auto number = [](int value) { return static_cast<std::uint32_t>(value); };
  const GgufType type = !how                          ? GgufType::kF32
                        : *how == Quantization::kQ8_0 ? GgufType::kQ8_0
                                                      : GgufType::kQ4_0;
  const std::uint32_t file_type = type == GgufType::kF32 ? 0 : type == GgufType::kQ8_0 ? 7 : 2;
  GgufKeys keys{
      {"general.architecture", std::string("gpt2")},   {"gpt2.context_length", number(shape.n_positions)},
      {"gpt2.embedding_length", number(shape.n_embd)}, {"gpt2.feed_forward_length", number(4 * shape.n_embd)},
      {"gpt2.block_count", number(shape.n_layer)},     {"gpt2.attention.head_count", number(shape.n_head)},
      {"gpt2.attention.layer_norm_epsilon", 1e-5f},    {"general.file_type", file_type},
      {"general.quantization_version", number(2)}};
  add_vocabulary(keys, shape.vocab_size, tokenizer);
  const Program program = gpt2_program_of(shape);
  const auto matrices = quantized_matrices(program, Quantization::kQ8_0);
  std::vector<GgufTensor> tensors;
  for (std::size_t index = 0; index < program.parameters.size(); ++index) {
    const Parameter& parameter = program.parameters[index];
    GgufTensor tensor{.name = gguf_name(parameter.name), .shape = {}, .bytes = {}};
    const auto matrix = std::ranges::find(matrices, index, &QuantizedMatrix::parameter);
    if (matrix == matrices.end()) {
      tensor.shape.assign(parameter.shape.begin(), parameter.shape.end());
      tensor.bytes = bytes_of(values_of(parameter, flat));
    } else {
      const std::vector<float> rows = rows_of(program, *matrix, flat.data());
      tensor.shape = {matrix->rows, matrix->columns};
      tensor.type = type;
      tensor.bytes = how ? gguf_blocks(*how, quantize(*how, rows, matrix->columns)) : bytes_of(rows);
    }
    tensors.push_back(std::move(tensor));
  }
  return gguf_file(keys, tensors);
}

PackedFiles gpt2_packed(const ModelConfig& shape, const std::vector<float>& flat, Quantization how,
                        const std::string& hub_config) {
  const Program program = gpt2_program_of(shape);
  const auto matrices = quantized_matrices(program, how);
  PackedTensors tensors;
  for (std::size_t index = 0; index < program.parameters.size(); ++index) {
    const Parameter& parameter = program.parameters[index];
    const auto matrix = std::ranges::find(matrices, index, &QuantizedMatrix::parameter);
    const std::vector<std::string> names = opt_names(parameter.name);
    if (matrix != matrices.end())
      tensors.add_matrices(names, how, rows_of(program, *matrix, flat.data()), matrix->columns);
    else
      tensors.add_floats(names, parameter, flat);
  }
  return {.model = tensors.file(),
          .config = json_text(opt_config(shape, parse_json(hub_config), how), 2) + "\n"};
}

}  // namespace dtrun::worker
