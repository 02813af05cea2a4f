// The fingerprint by which two trained models are compared: sha256 over the parameters.
#include <openssl/evp.h>

#include <algorithm>
#include <bit>
#include <memory>

#include "worker/base/error.h"
#include "worker/model/program.h"

namespace dtrun::worker {
namespace {

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    check(context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
  }
  void update(const void* bytes, std::size_t size) {
    check(EVP_DigestUpdate(context_.get(), bytes, size) == 1);
  }
  std::string hex() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    check(EVP_DigestFinal_ex(context_.get(), digest, &size) == 1);
    std::string text;
    for (unsigned int i = 0; i < size; ++i) {
      text += "0123456789abcdef"[digest[i] >> 4];
      text += "0123456789abcdef"[digest[i] & 15];
    }
    return text;
  }

 private:
  static void check(bool ok) {
    if (!ok) throw WorkerError(kExitSoftware, "libcrypto could not compute a sha256");
  }
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

void update_little_endian(Sha256& hash, std::span<const float> values) {
  if constexpr (std::endian::native == std::endian::little) {
    hash.update(values.data(), values.size_bytes());
  } else {
    for (const float value : values) {
      const auto bits = std::bit_cast<std::uint32_t>(value);
      const unsigned char bytes[4] = {static_cast<unsigned char>(bits), static_cast<unsigned char>(bits >> 8),
                                      static_cast<unsigned char>(bits >> 16),
                                      static_cast<unsigned char>(bits >> 24)};
      hash.update(bytes, sizeof(bytes));
    }
  }
}

}  // namespace

std::string parameters_sha256(const Program& program, std::span<const float> flat) {
  std::vector<const Parameter*> by_name;
  for (const Parameter& parameter : program.parameters) by_name.push_back(&parameter);
  std::sort(by_name.begin(), by_name.end(),
            [](const Parameter* left, const Parameter* right) { return left->name < right->name; });
  Sha256 hash;
  for (const Parameter* parameter : by_name)
    update_little_endian(hash, flat.subspan(parameter->offset, parameter->size));
  return hash.hex();
}

}  // namespace dtrun::worker
