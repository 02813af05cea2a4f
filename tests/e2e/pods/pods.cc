#include "tests/e2e/pods/pods.h"

#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/files.h"

namespace dtrun::test {
namespace {

constexpr char kDomain[] = "default.svc.cluster.local";
constexpr char kDnsAddress[] = "10.78.0.2";

std::string between(const std::string& text, const std::string& before, const std::string& behind) {
  const std::size_t begin = text.find(before);
  REQUIRE_MESSAGE(begin != std::string::npos, before);
  const std::size_t from = begin + before.size();
  return text.substr(from, text.find(behind, from) - from);
}

std::vector<std::string> in(const NamespaceHolder& holder, const std::vector<std::string>& argv) {
  return joined({"nsenter", "--target", std::to_string(holder.pid()), "--net", "--mount", "--uts", "--"},
                argv);
}

}  // namespace

std::string why_no_pods() {
  if (run({"dnsmasq", "--version"}).exit_code != 0) return "dnsmasq is missing (scripts/setup --tests)";
  return why_no_hosts();
}

Pods::Pods(const std::vector<std::string>& words) : dns_host_("dns", "") {
  const Ended made = run(joined(joined({kDtrun, "kubernetes", "--image", "r/dtrun:1"}, words),
                                {"output_dir=" + output().string()}));
  REQUIRE_MESSAGE(made.exit_code == 0, made.err);
  name_ = between(made.out, "      subdomain: \"", "\"");
  const std::string config = file("job.json", between(made.out, "  job.json: |\n", "---\n"));
  file("key", output_of({"base64", "-d", file("encoded", between(made.out, "data: {key: \"", "\""))}));
  std::filesystem::permissions(folder_ / "key",
                               std::filesystem::perms(0440));  // the manifest's defaultMode
  arguments_ =
      nlohmann::json::parse(between(made.out, "        args: ", "\n")).get<std::vector<std::string>>();
  const auto mounted = std::find(arguments_.begin(), arguments_.end(), "/config/job.json");
  REQUIRE(mounted != arguments_.end());
  *mounted = config;
  file("resolv.conf", std::string("search ") + kDomain + " svc.cluster.local cluster.local\nnameserver " +
                          kDnsAddress + "\noptions ndots:5\n");
  switch_.plug(dns_host_.pid(), "dns", std::string(kDnsAddress) + "/16");
  dns_ = std::make_unique<Process>(in(
      dns_host_,
      {"dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--user=root", "--pid-file", "--no-resolv",
       "--no-hosts", "--local=/cluster.local/", "--addn-hosts=" + file("records", ""), "--log-facility=-"}));
}

Pods::~Pods() = default;

std::string Pods::file(const std::string& name, const std::string& text) const {
  write_text(folder_ / name, text);
  return folder_ / name;
}

std::string Pods::start(int index) {
  const int serial = ++pods_so_far_;
  const std::string address = "10.78.1." + std::to_string(serial);
  Pod& pod = pods_[index];
  pod = {.port = "pod" + std::to_string(serial),
         .sandbox = std::make_unique<NamespaceHolder>(host_name(index), ""),
         .container = nullptr};
  switch_.plug(pod.sandbox->pid(), pod.port, address + "/16");
  const std::string own = host_name(index);
  file(own + ".hosts",
       "127.0.0.1 localhost\n" + address + " " + own + "." + name_ + "." + kDomain + " " + own + "\n");
  for (const auto& [from, to] :
       {std::pair(own + ".hosts", "/etc/hosts"), std::pair(std::string("resolv.conf"), "/etc/resolv.conf")})
    output_of(in(*pod.sandbox, {"mount", "--bind", folder_ / from, to}));
  pod.container = std::make_unique<Process>(
      in(*pod.sandbox,
         joined({"unshare", "--pid", "--fork", "--kill-child", "--mount-proc", kDtrun}, arguments_)),
      std::vector<std::string>{"HOSTNAME=" + own, "JOB_COMPLETION_INDEX=" + std::to_string(index),
                               "KUBERNETES_SERVICE_HOST=10.96.0.1",
                               "DTRUN_KEY_FILE=" + (folder_ / "key").string(), "DTRUN_RDZV_ID=6c1f2a9e"});
  return address;
}

void Pods::publish(int index, const std::vector<std::string>& addresses) {
  records_[index] = addresses;
  std::ostringstream lines;
  for (const auto& [pod, published] : records_)
    for (const std::string& address : published)
      lines << address << " " << host_name(pod) << "." << name_ << "." << kDomain << "\n";
  file("records", lines.str());
  dns_->signal(SIGHUP);
}

pid_t Pods::dtrun(int index) const {
  std::vector<pid_t> found;
  CHECK(eventually([&] { return (found = children_of(container(index).pid(), "dtrun")).size() == 1; }));
  return found.at(0);
}

std::vector<int> Pods::indices() const {
  std::vector<int> indices;
  for (const auto& [index, pod] : pods_) indices.push_back(index);
  return indices;
}

std::string Pods::said() const {
  std::string text;
  for (const auto& [index, pod] : pods_)
    text += "pod " + std::to_string(index) + ":\n" + pod.container->err() + pod.container->out();
  return text;
}

int Pods::stop(int index) {
  kill(dtrun(index), SIGTERM);
  const int code = container(index).wait();
  pods_.erase(index);
  return code;
}

void Pods::remove(int index) {
  kill(dtrun(index), SIGKILL);
  CHECK(container(index).wait() != 0);
  pods_.erase(index);
}

void Pods::lose(int index) {
  switch_.drop(pods_.at(index).port);
  remove(index);
}

}  // namespace dtrun::test
