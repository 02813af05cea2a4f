#include "worker/quantize/gguf.h"

#include <bit>

namespace dtrun::worker {
namespace {

constexpr std::uint32_t kVersion = 3;
constexpr std::size_t kAlignment = 32;
enum class Kind : std::uint32_t { kUint32 = 4, kInt32 = 5, kFloat32 = 6, kString = 8, kArray = 9 };

class Bytes {
 public:
  void add(std::uint32_t number) { add(number, 4); }
  void add(std::int32_t number) { add(static_cast<std::uint32_t>(number)); }
  void add(std::uint64_t number) { add(number, 8); }
  void add(float number) { add(std::bit_cast<std::uint32_t>(number)); }
  void add(Kind kind) { add(static_cast<std::uint32_t>(kind)); }
  void add(const std::string& text) { add(std::uint64_t{text.size()}), text_ += text; }
  template <typename T>
  void add(const std::vector<T>& all) {
    add(std::uint64_t{all.size()});
    for (const T& one : all) add(one);
  }
  void add_raw(const std::string& bytes) { text_ += bytes; }
  void pad() { text_.resize((text_.size() + kAlignment - 1) / kAlignment * kAlignment); }
  std::string take() { return std::move(text_); }

 private:
  void add(std::uint64_t number, int bytes) {
    for (int i = 0; i < bytes; ++i) text_ += static_cast<char>(number >> (8 * i));
  }
  std::string text_;
};

void add_kind(Bytes& to, std::uint32_t) { to.add(Kind::kUint32); }
void add_kind(Bytes& to, float) { to.add(Kind::kFloat32); }
void add_kind(Bytes& to, const std::string&) { to.add(Kind::kString); }
void add_kind(Bytes& to, const std::vector<std::string>&) { to.add(Kind::kArray), to.add(Kind::kString); }
void add_kind(Bytes& to, const std::vector<std::int32_t>&) { to.add(Kind::kArray), to.add(Kind::kInt32); }

}  // namespace

std::string gguf_file(const GgufKeys& keys, std::span<const GgufTensor> tensors) {
  Bytes file;
  file.add_raw("GGUF");
  file.add(kVersion);
  file.add(std::uint64_t{tensors.size()});
  file.add(std::uint64_t{keys.size()});
  for (const auto& [name, value] : keys) {
    file.add(name);
    std::visit([&](const auto& of_key) { add_kind(file, of_key), file.add(of_key); }, value);
  }
  std::uint64_t offset = 0;
  for (const GgufTensor& tensor : tensors) {
    file.add(tensor.name);
    file.add(static_cast<std::uint32_t>(tensor.shape.size()));
    for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size) file.add(*size);
    file.add(static_cast<std::uint32_t>(tensor.type));
    file.add(offset);
    offset += (tensor.bytes.size() + kAlignment - 1) / kAlignment * kAlignment;
  }
  file.pad();
  for (const GgufTensor& tensor : tensors) file.add_raw(tensor.bytes), file.pad();
  return file.take();
}

}  // namespace dtrun::worker
