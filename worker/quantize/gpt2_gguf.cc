#include "worker/quantize/gpt2_gguf.h"

#include <algorithm>
#include <utility>

#include "worker/model/hub.h"
#include "worker/quantize/gguf.h"
#include "worker/quantize/matrices.h"
#include "worker/tokenizer/byte_alphabet.h"

namespace dtrun::worker {
namespace {

std::string bytes_of(const auto& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0])};
}

// "h.3.mlp.c_fc.weight" -> "blk.3.ffn_up.weight".
std::string gguf_name(const std::string& name) {
  static constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"wte", "token_embd"}, {"wpe", "position_embd"},    {"ln_f", "output_norm"},
      {"ln_1", "attn_norm"}, {"attn.c_attn", "attn_qkv"}, {"attn.c_proj", "attn_output"},
      {"ln_2", "ffn_norm"},  {"mlp.c_fc", "ffn_up"},      {"mlp.c_proj", "ffn_down"}};
  std::size_t begin = 0;
  std::string block;
  if (name.starts_with("h.")) {
    begin = name.find('.', 2) + 1;
    block = "blk." + name.substr(2, begin - 2);
  }
  const std::size_t end = name.rfind('.');
  const auto* const layer =
      std::ranges::find(kNames, name.substr(begin, end - begin), [](const auto& pair) { return pair.first; });
  return block + std::string(layer->second) + name.substr(end);
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

}  // namespace

Status check_blocks(const Program& program, Quantization how) {
  for (const QuantizedMatrix& matrix : quantized_matrices(program)) {
    if (matrix.columns % kQuantizedBlock == 0) continue;
    const std::string block = std::to_string(kQuantizedBlock);
    return Status(kExitConfig, name_of(how) + " has blocks of " + block + " weights, and " +
                                   program.parameters[matrix.parameter].name + " has rows of " +
                                   std::to_string(matrix.columns) +
                                   ": train a model whose n_embd is a multiple of " + block);
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
  const auto matrices = quantized_matrices(program);
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

}  // namespace dtrun::worker
