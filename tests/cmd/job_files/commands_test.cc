// dtrun kubernetes and dtrun slurm as a user types them; the objects for Kubernetes against the schemas of
// its own releases, which PyPI's kubernetes-validate has.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/support/process.h"
#include "tests/support/skip.h"

using namespace dtrun::test;

namespace {

constexpr char kValidate[] = R"(
import sys, yaml, kubernetes_validate
for version in "1.33", "1.34", "1.35", "1.36":
    kinds = []
    for object in yaml.safe_load_all(open(sys.argv[1])):
        kubernetes_validate.validate(object, version, strict=True)
        kinds.append(object["kind"])
    print(version, *kinds)
)";

const std::string kConfig = DTRUN_SOURCE_DIR "/configs/fashion_mnist_convnet.json";

}  // namespace

TEST_CASE("what cannot run is refused before anything is written") {
  for (const char* command : {"kubernetes", "slurm"}) {
    CAPTURE(command);
    const auto refused = [&](int exit_code, const std::string& why, const std::vector<std::string>& more) {
      std::vector<std::string> words{kDtrun, command};
      words.insert(words.end(), more.begin(), more.end());
      const Ended ended = run(words);
      CHECK(ended.exit_code == exit_code);
      CHECK_MESSAGE(contains(ended.err, why), ended.err);
      CHECK(ended.out.empty());
    };
    refused(66, "No such file", {"nothing.json"});
    refused(78, "train.learning_rat", {kConfig, "train.learning_rat=1"});
    refused(64, "nnodes", {"--nnodes", "x", kConfig});
    refused(64, "gpus", {"--gpus", "-1", kConfig});
    refused(64, "needs CONFIG.json", {});
  }
}

TEST_CASE("an output that would go with the pod is warned of; each manifest has a key of its own") {
  const Ended lost = run({kDtrun, "kubernetes", kConfig});
  CHECK(contains(lost.err, "goes with the pod"));
  const Ended kept = run({kDtrun, "kubernetes", "--volume", "o=/out", kConfig, "output_dir=/out/run"});
  CHECK(kept.err.empty());
  CHECK(contains(run({kDtrun, "kubernetes", "--volume", "o=/out", kConfig, "output_dir=/outer"}).err, "pod"));
  const auto key_of = [](const std::string& yaml) { return yaml.substr(yaml.find("token: "), 60); };
  CHECK(key_of(lost.out) != key_of(kept.out));
}

TEST_SUITE("kubernetes_validate") {
  TEST_CASE("every release of Kubernetes that has their fields takes the objects") {
    if (run({"python3", "-c", "import yaml, kubernetes_validate"}).exit_code != 0)
      return skip("needs a python3 with kubernetes-validate and pyyaml in PATH");
    const Folder folder;
    for (const std::vector<std::string>& more :
         {std::vector<std::string>{},
          {"--nnodes", "2:4", "--gpus", "8", "--cpus", "8", "--memory", "16Gi", "--volume", "out=/out"}}) {
      std::vector<std::string> words{kDtrun, "kubernetes", kConfig};
      words.insert(words.end(), more.begin(), more.end());
      const Ended written = run(words);
      REQUIRE(written.exit_code == 0);
      write_text(folder / "job.yaml", written.out);
      const Ended checked = run({"python3", "-c", kValidate, folder / "job.yaml"});
      CHECK_MESSAGE(checked.exit_code == 0, checked.err);
      CHECK(checked.out.ends_with("1.36 Secret Service ConfigMap Job\n"));
    }
  }
}
