// A job under Kubeflow Trainer, which wants to know how far it is: a real HTTPS server with a certificate of
// its own.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/e2e/training.h"

namespace dtrun::kubeflow_test {

using namespace dtrun::test;

namespace {

constexpr char kServer[] = DTRUN_SOURCE_DIR "/tests/e2e/kubeflow_server.py";

struct Site {
  Site() {
    for (const char* name : {"server", "other"})
      output_of({"openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                 "-days", "1", "-subj", "/CN=trainer", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout",
                 file(name, ".key"), "-out", file(name, ".crt")});
    write_text(file("token", ""), "a-token\n");
  }
  std::string file(const std::string& name, const std::string& ending) const {
    return folder / (name + ending);
  }
  std::vector<std::string> environment(const std::string& port, const std::string& authority) const {
    return {"KUBEFLOW_TRAINER_SERVER_URL=https://127.0.0.1:" + port + "/apis/trainer/status",
            "KUBEFLOW_TRAINER_SERVER_CA_CERT=" + file(authority, ".crt"),
            "KUBEFLOW_TRAINER_SERVER_TOKEN=" + file("token", "")};
  }
  Ended train(const std::string& port, const std::string& authority) const {
    return run(training(standalone(2), folder / "out", {"train.max_steps=30"}), environment(port, authority));
  }

  const Folder folder;
};

class Server {
 public:
  Server(const Site& site, const std::string& answer)
      : process_({"python3", kServer, site.file("server", ".crt"), site.file("server", ".key"), answer}) {
    REQUIRE(process_.wait_for_out("\n"));
  }
  std::string port() const { return process_.out().substr(0, process_.out().find('\n')); }
  std::vector<nlohmann::json> posts() const {
    std::istringstream lines(process_.out());
    std::vector<nlohmann::json> found;
    std::string line;
    for (std::getline(lines, line); std::getline(lines, line);) found.push_back(nlohmann::json::parse(line));
    return found;
  }

 private:
  Process process_;
};

int percent(const nlohmann::json& post) { return post["body"]["trainerStatus"]["progressPercentage"]; }

constexpr char kRefused[] = "Kubeflow does not take the job's progress, and the job goes on: ";

}  // namespace

TEST_CASE("it is told how far the job is, at last that it is done") {
  const Site site;
  const Server server(site, "200");
  const Ended ended = site.train(server.port(), "server");
  REQUIRE_MESSAGE(ended.exit_code == 0, ended.err);
  CHECK(!contains(ended.err, "Kubeflow"));
  const std::vector<nlohmann::json> posts = server.posts();
  REQUIRE(!posts.empty());
  for (std::size_t at = 0; at < posts.size(); ++at) {
    CHECK(posts[at]["path"] == "/apis/trainer/status");
    CHECK(posts[at]["authorization"] == "Bearer a-token");
    CHECK(posts[at]["type"] == "application/json");
    if (at > 0) CHECK(percent(posts[at]) >= percent(posts[at - 1]));
  }
  CHECK(percent(posts.back()) == 100);
}

TEST_CASE("a server that refuses, is not there, or is another one: one line, and the job goes on") {
  const Site site;
  const Server refuses(site, "403"), takes(site, "200");
  const auto word = [&](const std::string& port, const std::string& authority) {
    const Ended ended = site.train(port, authority);
    CHECK_MESSAGE(ended.exit_code == 0, ended.err);
    const std::size_t at = ended.err.find(kRefused);
    REQUIRE_MESSAGE(at != std::string::npos, ended.err);
    CHECK(ended.err.find(kRefused, at + 1) == std::string::npos);
    std::filesystem::remove_all(site.folder / "out");
    return ended.err.substr(at, ended.err.find('\n', at) - at);
  };
  CHECK(contains(word(refuses.port(), "server"), "403"));
  CHECK(contains(word(takes.port(), "other"), "certificate verify failed"));
  CHECK(takes.posts().empty());
  CHECK(contains(word("1", "server"), "connect timeout"));
}

}  // namespace dtrun::kubeflow_test
