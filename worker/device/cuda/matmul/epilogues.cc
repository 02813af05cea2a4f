#include "worker/device/cuda/matmul/epilogues.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "proto/core/exit_codes.h"
#include "worker/base/error.h"

namespace dtrun::worker::cuda {
namespace {

constexpr const char* kVariable = "DTRUN_CUDA_EPILOGUES";
constexpr std::array<std::string_view, 4> kWords{"bias", "gelu", "gelu_gradient", "sums"};
constexpr unsigned kAll = (1u << kWords.size()) - 1;

}  // namespace

Epilogues::Epilogues(std::string_view words) {
  if (words == "1") groups_ = kAll;
  if (words == "0" || words == "1") return;
  for (std::string_view left = words;;) {
    const std::size_t comma = left.find(',');
    const auto* const word = std::ranges::find(kWords, left.substr(0, comma));
    if (word == kWords.end())
      throw WorkerError(kExitConfig, std::string(kVariable) + "=" + std::string(words) +
                                         " is neither 0 nor 1, nor some of bias,gelu,gelu_gradient,sums");
    groups_ |= 1u << (word - kWords.begin());
    if (comma == std::string_view::npos) return;
    left.remove_prefix(comma + 1);
  }
}

Epilogues Epilogues::wanted() {
  const char* const value = std::getenv(kVariable);
  return Epilogues(value == nullptr ? "1" : value);
}

bool Epilogues::may(Epilogue epilogue) const {
  const auto has = [this](unsigned group) { return (groups_ >> group & 1) != 0; };
  switch (epilogue) {
    case Epilogue::kNone:
      return true;
    case Epilogue::kBias:
    case Epilogue::kBiasRelu:
      return has(0);
    case Epilogue::kBiasGelu:
      return has(1);
    case Epilogue::kGeluGradient:
      return has(2);
    case Epilogue::kRowSums:
    case Epilogue::kColumnSums:
      return has(3);
  }
  return false;
}

std::string Epilogues::name() const {
  if (groups_ == kAll) return "";
  std::string words;
  for (std::size_t i = 0; i < kWords.size(); ++i)
    if ((groups_ >> i & 1) != 0) words += (words.empty() ? "" : ",") + std::string(kWords[i]);
  return words.empty() ? "none" : words;
}

}  // namespace dtrun::worker::cuda
