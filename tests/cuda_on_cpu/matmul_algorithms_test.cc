// cuBLASLt's stand-in: the algorithms that it proposes.
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "tests/cuda_on_cpu/matmul_case.h"

namespace {

using namespace cuda_on_cpu;

TEST_CASE("an algorithm carries its shape, and a split changes the order of the sums and needs workspace") {
  const Restored restored;
  Setup setup{16, 16, 256};
  setup.out = CUDA_R_32F;
  Case c(setup);
  cublasLtMatmulHeuristicResult_t found;
  LT(c.heuristic(&found));
  CHECK(found.workspaceSize == 4 * 16 * 16 * sizeof(float));
  std::int32_t splits = 0;
  std::size_t written = 0;
  LT(cublasLtMatmulAlgoConfigGetAttribute(&found.algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits,
                                          sizeof splits, &written));
  CHECK(splits == 4);
  CHECK(c.matmul(&found.algo) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(matmul_refusal() == "less workspace than the algorithm needs");
  const OnDevice<char> workspace(std::vector<char>(found.workspaceSize, 0));
  CHECK(c.matmul(&found.algo, workspace.data() + 16, found.workspaceSize - 16) ==
        CUBLAS_STATUS_INVALID_VALUE);
  LT(c.matmul(&found.algo, workspace.data(), found.workspaceSize));
  const auto split = c.on_d.get();
  check_plain(c);
  CHECK(workspace.get()[0] != 0);  // it is used
  LT(c.matmul(&found.algo, workspace.data(), found.workspaceSize));
  CHECK(c.on_d.get() == split);
  LT(c.matmul());
  CHECK(c.on_d.get() != split);
  check_plain(c);

  std::vector<Setup> others(6, setup);
  others[0].m = 8;
  others[1].n = 8;
  others[2].k = 128;
  others[3].transposed_a = true;
  others[4].out = CUDA_R_16BF;
  others[5].epilogue = CUBLASLT_EPILOGUE_RELU;
  for (const Setup& changed : others) {
    Case other(changed);
    CHECK(other.matmul(&found.algo, workspace.data(), found.workspaceSize) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(matmul_refusal() == "an algorithm that was found for another matmul");
  }

  cublasLtMatmulAlgo_t algo;
  LT(cublasLtMatmulAlgoInit(c.handle, CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16BF, CUDA_R_16BF, CUDA_R_32F,
                            CUDA_R_32F, 1, &algo));
  splits = 2;
  LT(cublasLtMatmulAlgoConfigSetAttribute(&algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits, sizeof splits));
  const auto check = [&] {
    return cublasLtMatmulAlgoCheck(c.handle, c.description, c.layout_a, c.layout_b, c.layout_d, c.layout_d,
                                   &algo, &found);
  };
  CHECK(check() == CUBLAS_STATUS_NOT_SUPPORTED);
  const std::uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  LT(cublasLtMatmulAlgoConfigSetAttribute(&algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme,
                                          sizeof scheme));
  CHECK(check() == CUBLAS_STATUS_SUCCESS);
  CHECK(found.workspaceSize == 2 * 16 * 16 * sizeof(float));
}

// Up to 16 of them, and D of each.
struct Proposals {
  explicit Proposals(Case* c) : found(16) {
    int count = 0;
    LT(cublasLtMatmulAlgoGetHeuristic(c->handle, c->description, c->layout_a, c->layout_b, c->layout_d,
                                      c->layout_d, c->preference, 16, found.data(), &count));
    found.resize(static_cast<std::size_t>(count));
    for (const auto& each : found) results.push_back(multiplied(c, each));
  }
  static std::vector<char> multiplied(Case* c, const cublasLtMatmulHeuristicResult_t& by) {
    const OnDevice<char> workspace(std::max<std::size_t>(by.workspaceSize, 256));
    LT(c->matmul(&by.algo, workspace.data(), by.workspaceSize));
    OK(cudaDeviceSynchronize());
    return c->on_d.get();
  }
  std::int32_t splits(std::size_t of) const {
    std::int32_t splits = 0;
    LT(cublasLtMatmulAlgoConfigGetAttribute(&found[of].algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits,
                                            sizeof splits, nullptr));
    return splits;
  }

  std::vector<cublasLtMatmulHeuristicResult_t> found;
  std::vector<std::vector<char>> results;
};

Setup long_sum() {
  Setup setup{24, 20, 400};
  setup.out = CUDA_R_32F;
  return setup;
}

TEST_CASE("several algorithms are proposed: tiles have the same bits, and splits others") {
  const Restored restored;
  Case c(long_sum());
  reset_counters();
  const Proposals proposals(&c);
  REQUIRE(proposals.found.size() == 5);
  CHECK(counters().products_by_algorithm == std::map<std::string, std::uint64_t>{{"tile 20, split 4", 1},
                                                                                 {"tile 20, split 1", 1},
                                                                                 {"tile 15, split 1", 1},
                                                                                 {"tile 15, split 2", 1},
                                                                                 {"tile 15, split 4", 1}});
  for (std::size_t i = 0; i < proposals.found.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      CAPTURE(i);
      CAPTURE(j);
      CHECK((proposals.results[i] == proposals.results[j]) == (proposals.splits(i) == proposals.splits(j)));
    }
  cublasLtMatmulHeuristicResult_t first;
  LT(c.heuristic(&first));
  CHECK(std::memcmp(&first.algo, &proposals.found[0].algo, sizeof first.algo) == 0);
  const std::uint32_t none = CUBLASLT_REDUCTION_SCHEME_NONE;
  LT(cublasLtMatmulPreferenceSetAttribute(c.preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &none,
                                          sizeof none));
  CHECK(Proposals(&c).found.size() == 2);
}

TEST_CASE("faulty algorithms are proposed where a test asks for them: one is wrong, one differs at times") {
  const Restored restored;
  Case c(long_sum());
  settings.faulty_algorithms = true;
  const Proposals proposals(&c);
  REQUIRE(proposals.found.size() == 7);
  CHECK(proposals.results[2] != proposals.results[1]);
  int others = 0;
  for (int i = 0; i < 16; ++i)
    others += static_cast<int>(Proposals::multiplied(&c, proposals.found[3]) != proposals.results[3]);
  CHECK(others == 2);
}

}  // namespace
