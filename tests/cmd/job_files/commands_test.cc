// dtrun kubernetes and dtrun slurm as a user types them; the objects for Kubernetes against the schemas of
// its own releases, which PyPI's kubernetes-validate has.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/support/process.h"
#include "tests/support/skip.h"

namespace dtrun::commands_test {

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

// `dtrun kubernetes` with an image.
std::vector<std::string> kubernetes(const std::vector<std::string>& more) {
  return joined({kDtrun, "kubernetes", "--image", "r/dtrun:1"}, more);
}

void is_refused(const std::vector<std::string>& words, int exit_code, const std::string& why) {
  const Ended ended = run(words);
  CHECK(ended.exit_code == exit_code);
  CHECK_MESSAGE(contains(ended.err, why), ended.err);
  CHECK(ended.out.empty());
}

}  // namespace

TEST_CASE("what cannot run is refused before anything is written") {
  for (const std::vector<std::string>& command : {kubernetes({}), {kDtrun, "slurm"}}) {
    CAPTURE(command[1]);
    is_refused(joined(command, {"nothing.json"}), 66, "No such file");
    is_refused(joined(command, {kConfig, "train.learning_rat=1"}), 78, "train.learning_rat");
    is_refused(joined(command, {"--nnodes", "x", kConfig}), 64, "nnodes");
    is_refused(joined(command, {"--gpus", "-1", kConfig}), 64, "gpus");
    is_refused(command, 64, "needs CONFIG.json");
  }
}

TEST_CASE("what no pod could start with is refused") {
  is_refused({kDtrun, "kubernetes", kConfig}, 64, "needs --image REGISTRY/NAME:TAG");
  is_refused({kDtrun, "kubernetes", "--image", "r/dtrun", kConfig}, 64, "--image=r/dtrun: expected a tag");
  is_refused(kubernetes({"--memory", "5XX", kConfig}), 64, "--memory=5XX: expected an amount of memory");
  is_refused(kubernetes({"--cpus", "many", kConfig}), 64, "--cpus=many: expected a number of CPUs");
  is_refused(kubernetes({"--volume", "d=/d:ro", kConfig, "output_dir=/d/run"}), 64,
             "d=/d:ro, where pods may only");
  CHECK(run(kubernetes({"--volume", "d=/d:ro", "--volume", "o=/d/out", kConfig, "output_dir=/d/out/run"}))
            .exit_code == 0);
}

TEST_CASE("an output that would go with the pod is warned of; each manifest has a key of its own") {
  const std::vector<std::string> data{kConfig, "data.path=/data"};
  const Ended lost = run(kubernetes(data));
  CHECK(contains(lost.err, "goes with the pod"));
  const std::vector<std::string> volume = joined({"--volume", "o=/out"}, data);
  const Ended kept = run(kubernetes(joined(volume, {"output_dir=/out/run"})));
  CHECK(kept.err.empty());
  CHECK(contains(run(kubernetes(joined(volume, {"output_dir=/outer"}))).err, "pod"));
  const auto key_of = [](const std::string& yaml) { return yaml.substr(yaml.find("{key: "), 60); };
  CHECK(key_of(lost.out) != key_of(kept.out));
}

TEST_CASE("input that lies beside this terminal, not in a pod, is warned of") {
  const auto said = [](const std::vector<std::string>& more) {
    return run(kubernetes(joined({"--volume", "o=/out", kConfig, "output_dir=/out/run"}, more))).err;
  };
  CHECK(contains(said({"data.path=data/mnist"}),
                 "data.path data/mnist is relative to /work, which is empty in a pod"));
  CHECK(contains(said({"data.path=/d", "train.init_from=runs/a"}), "train.init_from runs/a is relative"));
  CHECK(
      contains(said({"data.path=/d", "train.distill_from=runs/a"}), "train.distill_from runs/a is relative"));
  CHECK(said({"data.path=/d", "train.init_from=/d/a"}).empty());
}

TEST_SUITE("kubernetes_validate") {
  TEST_CASE("every release of Kubernetes that has their fields takes the objects") {
    if (run({"python3", "-c", "import yaml, kubernetes_validate"}).exit_code != 0)
      return skip("needs a python3 with kubernetes-validate and pyyaml in PATH");
    const Folder folder;
    for (const std::vector<std::string>& more :
         {std::vector<std::string>{},
          {"--nnodes", "2:4", "--gpus", "8", "--cpus", "8", "--memory", "16Gi", "--volume", "out=/out",
           "--volume", "data=/data:ro"}}) {
      const Ended written = run(joined(kubernetes({kConfig}), more));
      REQUIRE(written.exit_code == 0);
      write_text(folder / "job.yaml", written.out);
      const Ended checked = run({"python3", "-c", kValidate, folder / "job.yaml"});
      CHECK_MESSAGE(checked.exit_code == 0, checked.err);
      CHECK(checked.out.ends_with("1.36 Secret Service ConfigMap Job\n"));
    }
  }
}

}  // namespace dtrun::commands_test
