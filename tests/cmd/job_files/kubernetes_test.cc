#include "cmd/job_files/kubernetes.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/support/files.h"

namespace dtrun::cmd::kubernetes_test {
namespace {

using test::contains;

KubernetesJob job() {
  return {.name = "mnist",
          .print = "1a2b3c4d",
          .image = "registry/dtrun:1",
          .nodes = {3, 3},
          .key = "dGhlLWtleQ==",
          .metrics_token = "dG9rZW4=",
          .metrics_port = 29401,
          .file = "job.json",
          .text = R"({"output_dir": "/out/ü"})",
          .words = {"train.max_steps=3", "data.path=\"a: b\"#c"},
          .max_restarts = 10,
          .shutdown_timeout_s = 110};
}

}  // namespace

TEST_CASE("a job's objects have its name, pods, key, config and arguments") {
  const std::string yaml = kubernetes_yaml(job());
  for (const char* line :
       {"kind: Secret", "\nmetadata: {name: \"mnist-1a2b3c4d\"}\n",
        "\ndata: {key: \"dGhlLWtleQ==\", metrics-token: \"dG9rZW4=\"}\n", "secretName: \"mnist-1a2b3c4d\"",
        "configMap: {name: \"mnist-1a2b3c4d\"}", "\n      annotations: {dtrun/metrics-port: \"29401\"}\n",
        "\n        ports: [{name: metrics, containerPort: 29401}]\n",
        "\n  selector: {batch.kubernetes.io/job-name: \"mnist\"}\n",
        "\n  job.json: |\n    {\n      \"output_dir\": \"/out/\\u00fc\"\n    }\n", "\n  completions: 3\n",
        "\n  parallelism: 3\n", "\n      terminationGracePeriodSeconds: 120\n",
        "\n        image: \"registry/dtrun:1\"\n",
        "\n        args: "
        "[\"--nnodes\",\"3\",\"--max_restarts\",\"10\",\"--shutdown_timeout\",\"110\","
        "\"--http_port\",\"29401\",\"--http_bind\",\"0.0.0.0\",\"/config/"
        "job.json\",\"train.max_steps=3\",\"data.path=\\\"a: b\\\"#c\"]\n"})
    CHECK_MESSAGE(contains(yaml, line), line);
  for (const char* word : {"@", "resources:", "successPolicy", "persistentVolumeClaim"})
    CHECK_MESSAGE(!contains(yaml, word), word);
}

TEST_CASE("the pods pass the strictest of Kubernetes' own profiles, and hold no key to its API") {
  const std::string yaml = kubernetes_yaml(job());
  for (const char* word :
       {"runAsNonRoot: true", "seccompProfile: {type: RuntimeDefault}", "allowPrivilegeEscalation: false",
        "capabilities: {drop: [ALL]}", "\n      automountServiceAccountToken: false\n"})
    CHECK_MESSAGE(contains(yaml, word), word);
}

TEST_CASE("key and config stay as they are while the job runs, also where its objects are applied again") {
  const std::string yaml = kubernetes_yaml(job());
  for (const char* kind : {"kind: Secret", "kind: ConfigMap"}) {
    const std::string object = yaml.substr(yaml.find(kind));
    CHECK_MESSAGE(contains(object.substr(0, object.find("\n---\n")), "\nimmutable: true"), kind);
  }
}

TEST_CASE("the kubelet asks for the state of a pod once its dtrun has started") {
  CHECK(contains(kubernetes_yaml(job()), "readinessProbe: {initialDelaySeconds: 5, "));
}

TEST_CASE("where they meet, pods find by themselves") {
  KubernetesJob alone = job();
  alone.nodes = {1, 1};
  for (const KubernetesJob& one : {job(), alone}) CHECK(!contains(kubernetes_yaml(one), "rdzv_endpoint"));
}

TEST_CASE("GPUs, limits, volumes and a range of nodes have their lines") {
  KubernetesJob large = job();
  large.nodes = {2, 4};
  large.gpus = 8;
  large.metrics_port = 0;
  large.cpus = "96";
  large.memory = "1Ti";
  large.volumes = {{.claim = "data", .path = "/data", .read_only = true}, {.claim = "out", .path = "/out"}};
  const std::string yaml = kubernetes_yaml(large);
  for (const char* line :
       {"\n  completions: 4\n", "\n  successPolicy: {rules: [{succeededIndexes: \"0\"}]}\n",
        "args: [\"--nnodes\",\"2:4\"", "\"--nproc_per_node\",\"gpu\",\"/config/job.json\"",
        "\n        resources: {limits: {\"nvidia.com/gpu\":8,\"cpu\":\"96\",\"memory\":\"1Ti\"}}\n",
        "\n        - {name: volume-0, mountPath: \"/data\", readOnly: true}\n"
        "        - {name: volume-1, mountPath: \"/out\"}\n",
        "\n      - {name: volume-0, persistentVolumeClaim: {claimName: \"data\", readOnly: true}}\n",
        "\n      - {name: volume-1, persistentVolumeClaim: {claimName: \"out\"}}\n"})
    CHECK_MESSAGE(contains(yaml, line), line);
}

TEST_CASE("a script stands in the ConfigMap as it is, and a program needs none") {
  KubernetesJob script = job();
  script.file = "train.py";
  script.text = "import os\n\tprint('\"@name@\u00fc')\r\n";
  script.options = {"--log_dir=/out/logs", "--http_bind=::", "--nproc_per_node=2"};
  script.gpus = 8;
  script.words = {"--lr", "0.1"};
  const std::string yaml = kubernetes_yaml(script);
  CHECK(contains(
      yaml,
      "\ndata:\n  train.py: \"import os\\n\\tprint('\\\"@name@\\u00fc')\\r\\n\"\n---\napiVersion: batch/v1"));
  CHECK(
      contains(yaml,
               "\"--http_port\",\"29401\",\"--log_dir=/out/logs\",\"--http_bind=::\",\"--nproc_per_node=2\","
               "\"/config/train.py\",\"--lr\",\"0.1\"]"));
  KubernetesJob program = job();
  program.file = program.text = "";
  program.metrics_port = 0;
  program.words = {"--", "sh", "-c", "echo hi"};
  const std::string without = kubernetes_yaml(program);
  CHECK(contains(without, "\"--shutdown_timeout\",\"110\",\"--\",\"sh\",\"-c\",\"echo hi\"]"));
  for (const char* word : {"ConfigMap", "/config", "metrics-port", "ports:", "http_bind"})
    CHECK_MESSAGE(!contains(without, word), word);
}

TEST_CASE("a path is mounted once, and not over what dtrun needs") {
  const std::vector<VolumeMount> others{{.claim = "a", .path = "/data"}};
  CHECK(taken_by({.claim = "b", .path = "/data/"}, others) == "--volume a=/data");
  CHECK(taken_by({.claim = "b", .path = "/x/../data"}, others) == "--volume a=/data");
  for (const char* path : {"/config", "/tmp/", "/work", "/dev/shm", "//", "/var/run/secrets/dtrun"})
    CHECK_MESSAGE(taken_by({.claim = "b", .path = path}, {}) == "dtrun", path);
  for (const char* path : {"/data/x", "/tmp/x", "/out"})
    CHECK_MESSAGE(taken_by({.claim = "b", .path = path}, others).empty(), path);
}

TEST_CASE("a file's name in the pods is its own, where Kubernetes takes it") {
  CHECK(name_in_config_map("src/train_v2.1-b.py") == "train_v2.1-b.py");
  CHECK(name_in_config_map("my train.py") == "job.py");
  CHECK(name_in_config_map("...py") == "...py");
}

TEST_CASE("names are what Kubernetes takes") {
  CHECK(name_of_config("configs/Fashion_MNIST.v2.json") == "fashion-mnist-v2");
  CHECK(name_of_config("124M.json") == "job-124m");
  CHECK(name_of_config("_.json") == "job");
  CHECK(name_of_config("a_.json") == "a");
  CHECK(name_of_config(std::string(60, 'x')).size() == 52);
  for (const char* path : {"ümlaut.json", "-x-.json", "9.json", "A B.json", ".json"})
    CHECK_MESSAGE(fits_as_name(name_of_config(path)), path);
  for (const char* name : {"", "9a", "a-", "A", "a_b", "ä"}) CHECK_MESSAGE(!fits_as_name(name), name);
  CHECK(!fits_as_name(std::string(53, 'a')));
}

TEST_CASE("a volume is a claim and an absolute path") {
  const auto volume = parse_volume("data=/mnt/a=b");
  REQUIRE(volume.ok());
  CHECK(volume.value().claim == "data");
  CHECK(volume.value().path == "/mnt/a=b");
  CHECK_FALSE(volume.value().read_only);
  const auto read_only = parse_volume("data=/mnt:ro");
  REQUIRE(read_only.ok());
  CHECK(read_only.value().path == "/mnt");
  CHECK(read_only.value().read_only);
  for (const char* text :
       {"data", "data=", "=/x", "data=x", "data=/", "data=/:ro", "data=:ro", "data=/x:rw", "data=/x:ro:ro"})
    CHECK_MESSAGE(parse_volume(text).status().exit_code() == 64, text);
}

}  // namespace dtrun::cmd::kubernetes_test
