// dtrun kubernetes and dtrun slurm as a user types them; the objects for Kubernetes against the schemas of
// its own releases, which PyPI's kubernetes-validate has.
#include <doctest/doctest.h>

#include <filesystem>
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

// The patches of configs/cluster/kustomization.yaml, RFC 6902, by PyPI's jsonpatch.
constexpr char kPatch[] = R"(
import sys, yaml, jsonpatch, kubernetes_validate
objects = list(yaml.safe_load_all(open(sys.argv[1])))
kustomization = yaml.safe_load(open(sys.argv[2]))
for patch in kustomization["patches"]:
    for object in [one for one in objects if one["kind"] == patch["target"]["kind"]]:
        patched = jsonpatch.apply_patch(object, yaml.safe_load(patch["patch"]))
        kubernetes_validate.validate(patched, "1.36", strict=True)
        print(patched["kind"], *sorted(patched["spec"]["template"]["spec"]))
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
  is_refused(kubernetes({"--volume", "d=/tmp", kConfig}), 64, "d=/tmp: the path is that of dtrun already");
  is_refused(kubernetes({"--volume", "a=/d", "--volume", "b=/d/", kConfig}), 64,
             "b=/d/: the path is that of --volume a=/d already");
  is_refused(kubernetes({"--hostfile", "hosts", kConfig}), 64, "--hostfile");
  is_refused({kDtrun, "slurm", "--partition", "a\n#SBATCH --exclusive", kConfig}, 64,
             "expected names of partitions");
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

TEST_CASE("a script and any program are jobs too, with the options of dtrun") {
  const Folder folder;
  write_text(folder / "train.py", "print(1)\n");
  const std::vector<std::string> options{"--log_dir=/out/logs", "--heartbeat_timeout", "60"};
  const Ended script = run(kubernetes(joined(options, {folder / "train.py", "--lr", "0.1"})));
  CHECK_MESSAGE(script.exit_code == 0, script.err);
  for (const char* part :
       {"  train.py: \"print(1)\\n\"\n", "metadata: {name: \"train\"}",
        "\"--heartbeat_timeout=60\",\"--log_dir=/out/logs\",\"/config/train.py\",\"--lr\",\"0.1\"]"})
    CHECK_MESSAGE(contains(script.out, part), part);
  const Ended program = run(kubernetes({"--", "sh", "-c", "echo hi"}));
  CHECK(contains(program.out, "\"--\",\"sh\",\"-c\",\"echo hi\"]"));
  CHECK(program.err.empty());
  const Ended elsewhere = run(kubernetes({"/opt/train.py"}));
  CHECK(contains(elsewhere.out, "\"/opt/train.py\"]"));
  CHECK(contains(elsewhere.err, "/opt/train.py is not here"));
  const Ended module = run({kDtrun, "slurm", "-m", "pkg.train", "--lr", "0.1"});
  CHECK_MESSAGE(contains(module.out, "--module pkg.train --lr 0.1\n"), module.out);
  CHECK(contains(run({kDtrun, "slurm", "--", "./a b", "c"}).out, " -- './a b' c\n"));
}

TEST_CASE("the objects go to a file that nobody else may read") {
  const Folder folder;
  const Ended written = run(kubernetes({"-o", folder / "job.yaml", "--", "true"}));
  CHECK_MESSAGE(written.exit_code == 0, written.err);
  CHECK(written.out.empty());
  CHECK(std::filesystem::status(folder / "job.yaml").permissions() == std::filesystem::perms(0600));
  CHECK(contains(read_if_there(folder / "job.yaml"), "kind: Secret"));
}

TEST_SUITE("kubernetes_validate") {
  TEST_CASE("every release of Kubernetes that has their fields takes the objects") {
    if (run({"python3", "-c", "import yaml, kubernetes_validate"}).exit_code != 0)
      return skip("needs a python3 with kubernetes-validate and pyyaml in PATH");
    const Folder folder;
    for (const std::vector<std::string>& more :
         {std::vector<std::string>{},
          {"--http_port", "off"},
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

  TEST_CASE("the example of a kustomization fits the job, and the schema") {
    if (run({"python3", "-c", "import yaml, jsonpatch, kubernetes_validate"}).exit_code != 0)
      return skip("needs a python3 with kubernetes-validate, jsonpatch and pyyaml in PATH");
    const Folder folder;
    REQUIRE(run(kubernetes({"-o", folder / "job.yaml", "--nnodes", "2:4", kConfig})).exit_code == 0);
    const Ended patched = run({"python3", "-c", kPatch, folder / "job.yaml",
                               DTRUN_SOURCE_DIR "/configs/cluster/kustomization.yaml"});
    CHECK_MESSAGE(patched.exit_code == 0, patched.err);
    CHECK_MESSAGE(contains(patched.out, "nodeSelector priorityClassName"), patched.out);
  }
}

}  // namespace dtrun::commands_test
