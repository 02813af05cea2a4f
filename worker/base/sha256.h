// The sha256 of bytes that come in pieces.
#pragma once

#include <openssl/evp.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "proto/core/text.h"
#include "worker/base/error.h"

namespace dtrun::worker {

// Throws WorkerError (EX_SOFTWARE) if libcrypto cannot compute it.
class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    check(context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
  }
  void update(std::string_view bytes) {
    check(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1);
  }
  // Of all bytes; to be called once.
  std::string hex() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    check(EVP_DigestFinal_ex(context_.get(), digest, &size) == 1);
    return hexadecimal({digest, size});
  }

 private:
  static void check(bool ok) {
    if (!ok) throw WorkerError(kExitSoftware, "libcrypto could not compute a sha256");
  }
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

}  // namespace dtrun::worker
