// A flood of strangers against a coordinator with a key, and against a `dtrun store`, while a job runs: bytes
// at random, hellos that are cut off, plain HTTP/2 with a Join, TLS with another key and with none, what a
// member said replayed, and connections that stay and say little. None hears a word of HTTP/2, and the job
// does not notice. DTRUN_TEST_STRANGERS is how many (20,000).
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <random>
#include <thread>

#include "rendezvous/client/status_client.h"
#include "rendezvous/identity/identity.h"
#include "tests/e2e/training.h"
#include "tests/rendezvous/test_agent.h"
#include "tests/support/relay.h"

using namespace dtrun::test;
using namespace dtrun::rendezvous;

namespace {

using Clock = std::chrono::steady_clock;

long number_of_strangers() {
  const char* const number = std::getenv("DTRUN_TEST_STRANGERS");
  return number != nullptr ? std::atol(number) : 20000;
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// From one of many addresses of this host, at times from the members' own; -1 if the kernel has no port left.
int connect_from_somewhere(int port, std::mt19937& random) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  const std::uint32_t host = random() % 8 == 0 ? 0 : random() % 1000;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + (host << 8));
  const int on = 1;
  setsockopt(fd, SOL_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
  const timeval limit{1, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  (void)bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return fd;
  close(fd);
  return -1;
}

void hang_up(int fd) {
  const linger at_once{1, 0};  // no port waits for a minute
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  close(fd);
}

// What members said, as it went over the network.
struct Recordings {
  std::string plain, locked;  // a Join without a key, a call with the job's
};

std::string plain_join() {
  const auto server = start_server();
  Relay relay(server->port());
  TestAgent agent("agent", "127.0.0.1", relay.port());
  RunSettings run;
  run.run_id = "stranger";
  agent.join(run);
  REQUIRE(agent.hear(v1::FromCoordinator::kAssignment).has_value());
  return relay.sent();
}

std::string locked_call(int port, const JobKey& key) {
  Relay relay(port);
  REQUIRE(fetch_status("127.0.0.1", relay.port(), "", std::chrono::seconds(10), key).ok());
  return relay.sent();
}

using Context = std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)>;

// A client that believes every server, and shows the identity's certificate or none.
Context client_of(const std::optional<Identity>& identity) {
  Context context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  static constexpr std::array<unsigned char, 3> kProtocols{2, 'h', '2'};
  SSL_CTX_set_alpn_protos(context.get(), kProtocols.data(), kProtocols.size());
  if (!identity) return context;
  const auto read = [](const std::string& pem, auto* reader) {
    BIO* const memory = BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()));
    auto* const object = reader(memory, nullptr, nullptr, nullptr);
    BIO_free(memory);
    return object;
  };
  X509* const certificate = read(identity->certificate, PEM_read_bio_X509);
  EVP_PKEY* const key = read(identity->private_key, PEM_read_bio_PrivateKey);
  SSL_CTX_use_certificate(context.get(), certificate);
  SSL_CTX_use_PrivateKey(context.get(), key);
  X509_free(certificate);
  EVP_PKEY_free(key);
  return context;
}

// Strangers from many threads, which take only the time that nobody else wants.
class Flood {
 public:
  static constexpr int kKinds = 8, kThreads = 12;
  static constexpr std::array<const char*, kKinds> kNames{
      "random bytes", "cut hello", "plain Join", "other key", "no key", "replayed", "idle", "a byte a time"};

  Flood(int port, long number, Recordings recordings)
      : port_(port), left_(number), recordings_(std::move(recordings)) {
    for (int i = 0; i < kThreads; ++i) threads_.emplace_back([this, i] { run(static_cast<unsigned>(i)); });
  }
  ~Flood() { wait(); }
  void wait() {
    for (std::thread& thread : threads_)
      if (thread.joinable()) thread.join();
  }
  bool over() const { return left_ <= 0; }
  long answered() const { return answered_; }
  long come(int kind) const { return come_[static_cast<std::size_t>(kind)]; }

 private:
  void run(unsigned seed);
  void speak_tls(int fd, const Context& context);
  void listen(int fd);

  const int port_;
  std::atomic<long> left_, answered_{0};
  std::array<std::atomic<long>, kKinds> come_{};
  const Recordings recordings_;
  const Context other_ = client_of(make_identity(JobKey::random())), none_ = client_of(std::nullopt);
  std::vector<std::thread> threads_;
};

void Flood::run(unsigned seed) {
  const sched_param idle{};
  sched_setscheduler(0, SCHED_IDLE, &idle);
  std::mt19937 random(seed);
  std::vector<int> open;  // that stay
  const auto say = [](int fd, const std::string& words) {
    (void)send(fd, words.data(), words.size(), MSG_NOSIGNAL);
  };
  while (left_-- > 0) {
    const int kind = static_cast<int>(random() % kKinds);
    const int fd = connect_from_somewhere(port_, random);
    if (fd < 0) continue;
    ++come_[static_cast<std::size_t>(kind)];
    std::string words;
    if (kind == 0)
      for (auto more = 1 + random() % 400; more > 0; --more) words += static_cast<char>(random());
    if (kind == 1) words = recordings_.locked.substr(0, 1 + random() % 300);
    if (kind == 2) words = recordings_.plain;
    if (kind == 3 || kind == 4) speak_tls(fd, kind == 3 ? other_ : none_);
    if (kind == 5) words = recordings_.locked;
    if (kind == 7) words = recordings_.locked.substr(0, 1);
    say(fd, words);
    if (kind == 2 || kind == 0) listen(fd);
    if (kind < 6 && random() % 8 != 0) {
      hang_up(fd);
      continue;
    }
    open.push_back(fd);
    if (open.size() < 300) continue;
    for (const int stays : open) say(stays, recordings_.locked.substr(1, 1));
    for (const int stays : open) hang_up(stays);
    open.clear();
  }
  for (const int stays : open) hang_up(stays);
}

void Flood::speak_tls(int fd, const Context& context) {
  const std::unique_ptr<SSL, decltype(&SSL_free)> session(SSL_new(context.get()), SSL_free);
  SSL_set_fd(session.get(), fd);
  char byte = 0;
  if (SSL_connect(session.get()) == 1 && SSL_read(session.get(), &byte, 1) == 1) ++answered_;
}

// A frame of HTTP/2 begins with its length, below 16 MiB; a TLS server says nothing but an alert (21).
void Flood::listen(int fd) {
  pollfd polled{fd, POLLIN, 0};
  unsigned char first = 21;
  if (poll(&polled, 1, 2) == 1 && recv(fd, &first, 1, MSG_DONTWAIT) == 1 && first != 21) ++answered_;
}

// What a process takes of the machine.
struct Usage {
  long files = 0, kilobytes = 0;
};

Usage usage_of(pid_t pid) {
  const std::string at = "/proc/" + std::to_string(pid);
  Usage usage;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(at + "/fd", error)) (void)entry, ++usage.files;
  const std::string status = read_if_there(at + "/status");
  const std::size_t found = status.find("VmRSS:");
  if (found != std::string::npos) usage.kilobytes = std::atol(status.c_str() + found + 6);
  return usage;
}

// The job, and where it meets.
struct Site {
  explicit Site(int steps) : steps(steps) {
    write_text(folder / "key", key.text());
    chmod((folder / "key").c_str(), 0600);
  }
  std::vector<std::string> job(const std::vector<std::string>& options, const std::string& output) const {
    return training(options, folder / output, {"train.max_steps=" + std::to_string(steps)});
  }
  std::vector<std::string> node() const {
    return {"--nnodes",         "1",
            "--nproc_per_node", "1",
            "--lanes",          "1",
            "--rdzv_endpoint",  endpoint,
            "--token_file",     (folder / "key").string()};
  }
  long done() const { return metrics_lines(folder / "out"); }

  const Folder folder;
  const JobKey key = JobKey::random();
  const int steps;
  const int port = free_port();
  const std::string endpoint = "127.0.0.1:" + std::to_string(port);
};

// Steps a second, over so many seconds.
double speed(const Site& site, double seconds) {
  const auto begin = Clock::now();
  const long before = site.done();
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  return static_cast<double>(site.done() - before) / seconds_since(begin);
}

void weather(const Site& site, pid_t coordinator, const Process& job, long number) {
  REQUIRE(eventually([&] { return site.done() >= 20; }));
  const Recordings recordings{.plain = plain_join(), .locked = locked_call(site.port, site.key)};
  const double quiet = speed(site, 3);
  const Usage base = usage_of(coordinator);
  Usage most = base;
  const auto begin = Clock::now();
  const long before = site.done();
  Flood flood(site.port, number, recordings);
  double slowest = 0;
  while (!flood.over()) {
    const Usage now = usage_of(coordinator);
    most = {.files = std::max(most.files, now.files), .kilobytes = std::max(most.kilobytes, now.kilobytes)};
    const auto asked = Clock::now();
    const auto status = fetch_status("127.0.0.1", site.port, "", std::chrono::seconds(20), site.key);
    CHECK_MESSAGE(status.ok(), status.status().message());
    if (status.ok()) CHECK(status.value().runs_size() == 1);
    slowest = std::max(slowest, seconds_since(asked));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  const double took = seconds_since(begin);
  const double noisy = static_cast<double>(site.done() - before) / took;
  REQUIRE(is_alive(job.pid()));
  flood.wait();
  CHECK(flood.answered() == 0);
  for (int kind = 0; kind < Flood::kKinds; ++kind) CHECK(flood.come(kind) > number / Flood::kKinds / 2);
  const bool back =
      eventually([&] { return usage_of(coordinator).files <= base.files + 2; }, std::chrono::seconds(15));
  const Usage after = usage_of(coordinator);
  CHECK(back);
  CHECK(most.files - base.files < 2000);
  CHECK(most.kilobytes - base.kilobytes < 128 * 1024);
  CHECK(after.kilobytes - base.kilobytes < 96 * 1024);
  CHECK(noisy > quiet / 3);
  CHECK(slowest < 10);
  MESSAGE(number, " strangers in ", took, " s; the job: ", quiet, " steps/s before, ", noisy,
          " meanwhile; a status call at most ", slowest, " s; the coordinator: ", base.kilobytes >> 10, ", ",
          most.kilobytes >> 10, ", ", after.kilobytes >> 10, " MiB and ", base.files, ", ", most.files, ", ",
          after.files, " files before, at most, after");
}

// Long enough to be there all the time.
int steps_for(long strangers) { return static_cast<int>(300 + strangers / 12); }

TEST_CASE("a coordinator in an agent, under a flood: nobody is answered, and the job's bytes are the same") {
  signal(SIGPIPE, SIG_IGN);
  const long number = number_of_strangers() / 2;
  const Site site(steps_for(number));
  Process job(site.job(site.node(), "out"));
  weather(site, job.pid(), job, number);
  const Ended ended = job.end(std::chrono::minutes(30));
  REQUIRE_MESSAGE(ended.exit_code == 0, ended.err);
  CHECK(!contains(ended.err, "stranger"));
  Process alone(site.job(standalone(1), "alone"));
  REQUIRE(alone.wait(std::chrono::minutes(30)) == 0);
  CHECK(model(site.folder / "out") == model(site.folder / "alone"));
}

TEST_CASE("a store under a flood: it serves its job, and tells of no other") {
  signal(SIGPIPE, SIG_IGN);
  const long number = number_of_strangers() / 2;
  const Site site(steps_for(number));
  Process store({kDtrun, "store", "--bind", "127.0.0.1", "--port", std::to_string(site.port), "--token_file",
                 (site.folder / "key").string()});
  REQUIRE(store.wait_for_out("listening"));
  Process job(site.job(site.node(), "out"));
  weather(site, store.pid(), job, number);
  const Ended ended = job.end(std::chrono::minutes(30));
  REQUIRE_MESSAGE(ended.exit_code == 0, ended.err);
  CHECK(!contains(store.out(), "stranger"));
  store.signal(SIGTERM);
  CHECK(store.wait() == 143);
}

}  // namespace
