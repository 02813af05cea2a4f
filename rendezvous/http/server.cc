// Asio's one thread carries all connections. Limits against those who only take: bytes of a request, time for
// it, connections at once. When all places are taken, the connection that has waited longest for its other
// end goes, for a request or for that end to read. So whoever holds connections open does not keep others
// out, and those of the job's own user have places of their own.
#include "rendezvous/http/server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/status.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <list>
#include <thread>
#include <utility>

#include "proto/base/clock.h"
#include "proto/base/text_in.h"
#include "proto/core/exit_codes.h"
#include "rendezvous/http/access.h"

namespace dtrun::rendezvous {
namespace {

using namespace std::chrono_literals;
namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using Error = beast::error_code;
using Tcp = asio::ip::tcp;

constexpr std::size_t kMostConnections = 64, kPlacesOfOwnUser = 40, kMostStreams = 32;
constexpr std::uint32_t kMostHeaderBytes = 8192;
constexpr auto kRequestTime = 10s;  // from its first byte, or since the connection began, to its last
constexpr auto kWriteTime = 30s, kLingerTime = 1s, kStreamPeriod = 1s;
// Of a stream: a run of ten thousand nodes has a status of megabytes.
constexpr double kStreamBytesPerSecond = 1 << 20;

SocketAddress address_of(const Tcp::endpoint& end) {
  if (end.address().is_v4()) {
    const auto bytes = end.address().to_v4().to_bytes();
    return {.bytes = {bytes.begin(), bytes.end()}, .port = end.port()};
  }
  const auto bytes = end.address().to_v6().to_bytes();
  return {.bytes = {bytes.begin(), bytes.end()}, .port = end.port()};
}

// The user of this process, or root, opened the connection, on this machine.
bool is_of_own_user(const Tcp::endpoint& peer, const Tcp::endpoint& own) {
  if (!is_loopback(address_of(peer))) return false;
  for (const char* const name : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    if (const auto owner = owner_of(text_in(name), address_of(peer), address_of(own)))
      return *owner == geteuid() || *owner == 0;
  }
  return false;
}

class AnySession {
 public:
  virtual ~AnySession() = default;
  virtual void abort() = 0;
};

struct Places {
  std::size_t most;
  std::size_t taken = 0;
  std::list<AnySession*> waiting = {};  // for their other ends, the longest first
};

// What the connections share; of the one thread.
struct Hall {
  const Site& site;
  Places own_users, others;
  std::size_t streams = 0;
};

template <typename Stream>
class Session final : public AnySession, public std::enable_shared_from_this<Session<Stream>> {
 public:
  template <typename... More>
  Session(Hall& hall, bool trusted, Tcp::socket socket, More&... more)
      : hall_(hall),
        places_(trusted ? hall.own_users : hall.others),
        trusted_(trusted),
        stream_(std::move(socket), more...),
        timer_(stream_.get_executor()) {
    ++places_.taken;
  }
  ~Session() override {
    places_.waiting.remove(this);
    --places_.taken;
    if (event_stream_) --hall_.streams;
  }

  void start() {
    if constexpr (requires { stream_.async_handshake(asio::ssl::stream_base::server, [](Error) {}); }) {
      lowest().expires_after(kRequestTime);
      places_.waiting.push_back(this);
      stream_.async_handshake(asio::ssl::stream_base::server, [self = this->shared_from_this()](Error error) {
        self->places_.waiting.remove(self.get());
        if (!error) self->read();
      });
    } else {
      read();
    }
  }

  void abort() override { lowest().close(); }

 private:
  beast::tcp_stream& lowest() { return beast::get_lowest_layer(stream_); }

  // One type for all: the compiler makes the layers of a stream anew for each.
  using Handler = std::function<void(Error, std::size_t)>;

  void read() {
    parser_.emplace();
    parser_->header_limit(kMostHeaderBytes);
    lowest().expires_after(kRequestTime);
    places_.waiting.push_back(this);
    parse();
  }

  // What came behind the last request is the beginning of this one.
  void parse() {
    Error error;
    buffer_.consume(parser_->put(buffer_.data(), error));
    if (error != http::error::need_more) return came(error);
    const Handler handler = [self = this->shared_from_this()](Error failed, std::size_t bytes) {
      self->buffer_.commit(bytes);
      failed ? self->came(failed) : self->parse();
    };
    stream_.async_read_some(buffer_.prepare(kMostHeaderBytes - buffer_.size()), handler);
  }

  void came(Error error) {
    places_.waiting.remove(this);
    if (error == http::error::header_limit)
      return reply({.status = 431, .body = "the request is too long\n"}, true);
    if (error && error.category() == make_error_code(http::error::bad_version).category() &&
        error != http::error::end_of_stream)
      return reply({.status = 400, .body = "this is no request of HTTP/1.1\n"}, true);
    if (error) return;
    if (!parser_->is_done()) return reply({.status = 400, .body = "a request here has no body\n"}, true);
    const auto& message = parser_->get();
    const auto header = [&message](http::field field) { return std::string(message[field]); };
    HttpReply made = answer({.method = std::string(message.method_string()),
                             .target = std::string(message.target()),
                             .host = header(http::field::host),
                             .authorization = header(http::field::authorization),
                             .last_event_id = std::string(message["Last-Event-ID"])},
                            trusted_, hall_.site, wall_seconds());
    if (made.stream && !made.without_body && hall_.streams >= kMostStreams)
      made = {.status = 503, .body = "too many look on already\n"};
    if (made.stream && !made.without_body) return begin_stream(std::move(made));
    reply(std::move(made), !message.keep_alive());
  }

  // Without http::async_write, which takes the compiler five seconds.
  void reply(HttpReply made, bool last) {
    begin_text(made, last);
    text_ += "Content-Length: " + std::to_string(made.body.size()) + "\r\n\r\n";
    if (!made.without_body) text_ += made.body;
    write([self = this->shared_from_this(), last](Error error, std::size_t) {
      if (error) return;
      last ? self->linger() : self->read();
    });
  }

  void write(const Handler& handler) {
    lowest().expires_after(kWriteTime);
    places_.waiting.push_back(this);
    asio::async_write(stream_, asio::buffer(text_),
                      [self = this->shared_from_this(), handler](Error error, std::size_t bytes) {
                        self->places_.waiting.remove(self.get());
                        handler(error, bytes);
                      });
  }

  void begin_text(const HttpReply& made, bool last) {
    const std::string reason(http::obsolete_reason(static_cast<http::status>(made.status)));
    text_ = "HTTP/1.1 " + std::to_string(made.status) + " " + reason + "\r\n";
    text_ += "Content-Type: " + made.type + "\r\n";
    if (last) text_ += "Connection: close\r\n";
    for (const auto& [name, value] : kSafetyHeaders) text_ += name + ": " + value + "\r\n";
    for (const auto& [name, value] : made.headers) text_ += name + ": " + value + "\r\n";
  }

  // Bytes that nobody read would break the connection before the reply has arrived.
  void linger() {
    Error ignored;
    lowest().socket().shutdown(Tcp::socket::shutdown_send, ignored);
    lowest().expires_after(kLingerTime);
    drain();
  }

  void drain() {
    const Handler handler = [self = this->shared_from_this()](Error error, std::size_t) {
      if (!error) self->drain();
    };
    lowest().async_read_some(asio::buffer(rest_), handler);
  }

  void begin_stream(HttpReply made) {
    event_stream_ = std::move(made.stream);
    ++hall_.streams;
    begin_text(made, true);
    text_ += "\r\n";
    send(next_events(&*event_stream_, hall_.site, wall_seconds()));
  }

  // A reader who went is noticed by the write after it. A run that is known no more ends the stream.
  void send(const std::string& events) {
    text_ += events.empty() ? ": the run is not here\n\n" : events;
    write([self = this->shared_from_this(), last = events.empty()](Error error, std::size_t bytes) {
      if (!error && !last) self->wait(bytes);
    });
  }

  void wait(std::size_t written) {
    const auto pause = std::chrono::duration<double>(static_cast<double>(written) / kStreamBytesPerSecond);
    timer_.expires_after(std::max<asio::steady_timer::duration>(
        kStreamPeriod, std::chrono::duration_cast<asio::steady_timer::duration>(pause)));
    lowest().expires_never();
    timer_.async_wait([self = this->shared_from_this()](Error error) {
      self->text_.clear();
      if (!error) self->send(next_events(&*self->event_stream_, self->hall_.site, wall_seconds()));
    });
  }

  Hall& hall_;
  Places& places_;
  const bool trusted_;
  Stream stream_;
  asio::steady_timer timer_;
  beast::flat_buffer buffer_{kMostHeaderBytes};
  std::optional<http::request_parser<http::empty_body>> parser_;
  std::optional<EventStream> event_stream_;
  std::string text_;  // being written
  std::array<char, 1024> rest_{};
};

class BeastServer final : public HttpServer {
 public:
  BeastServer(HttpOptions options, int listener, int port)
      : options_(std::move(options)),
        listener_(listener),
        port_(port),
        hall_{.site = options_.site,
              .own_users = {.most = kPlacesOfOwnUser},
              .others = {.most = kMostConnections - (options_.identity ? 0 : kPlacesOfOwnUser)}} {}

  ~BeastServer() override {
    if (context_) context_->stop();
    if (thread_.joinable()) thread_.join();
    acceptor_.reset();
    context_.reset();  // and all connections with it
    close(listener_);
  }

  int port() const override { return port_; }
  int listener() const override { return listener_; }
  std::string url() const override {
    const bool six = options_.address.find(':') != std::string::npos;
    return std::string(options_.identity ? "https://" : "http://") +
           (six ? "[" + options_.address + "]" : options_.address) + ":" + std::to_string(port_);
  }

  void serve() override {
    context_ = std::make_unique<asio::io_context>(1);
    acceptor_.emplace(*context_, dup_of(listener_));
    if (options_.identity) {
      tls_.emplace(asio::ssl::context::tls_server);
      tls_->use_certificate(asio::buffer(options_.identity->certificate), asio::ssl::context::pem);
      tls_->use_private_key(asio::buffer(options_.identity->private_key), asio::ssl::context::pem);
    }
    wait();
    thread_ = std::thread([this] {
      pthread_setname_np(pthread_self(), "dtrun-page");
      context_->run();
    });
  }

 private:
  // The descriptor that Asio closes.
  static int dup_of(int fd) { return fcntl(fd, F_DUPFD_CLOEXEC, 0); }

  void wait() {
    acceptor_->async_wait(asio::posix::stream_descriptor::wait_read, [this](Error error) {
      if (error) return;
      accept();
      wait();
    });
  }

  // Asio's own accept() would leave the connection to the workers that the agent starts.
  void accept() {
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      // Without a descriptor left it would come again and again.
      if (errno == EMFILE || errno == ENFILE) std::this_thread::sleep_for(100ms);
      return;
    }
    const bool six = options_.address.find(':') != std::string::npos;
    Tcp::socket socket(*context_, six ? Tcp::v6() : Tcp::v4(), fd);
    Error gone;
    const Tcp::endpoint peer = socket.remote_endpoint(gone), own = socket.local_endpoint(gone);
    if (gone) return;
    // With TLS anybody may come by a proxy of the user's, or of root's.
    const bool trusted = !tls_ && is_of_own_user(peer, own);
    Places& places = trusted ? hall_.own_users : hall_.others;
    if (places.taken >= places.most) {
      if (places.waiting.empty()) return;
      places.waiting.front()->abort();
    }
    if (tls_)
      std::make_shared<Session<beast::ssl_stream<beast::tcp_stream>>>(hall_, trusted, std::move(socket),
                                                                      *tls_)
          ->start();
    else
      std::make_shared<Session<beast::tcp_stream>>(hall_, trusted, std::move(socket))->start();
  }

  const HttpOptions options_;
  const int listener_;
  const int port_;
  Hall hall_;
  std::optional<asio::ssl::context> tls_;
  std::unique_ptr<asio::io_context> context_;
  std::optional<asio::posix::stream_descriptor> acceptor_;
  std::thread thread_;
};

Status cannot_listen(const HttpOptions& options, int error) {
  return Status(kExitUnavailable,
                "the page cannot listen on " + options.address + " port " + std::to_string(options.port) +
                    ": " + std::strerror(error) +
                    (error == EADDRINUSE ? "; give --http_port another port, or auto" : ""));
}

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::listen(HttpOptions options) {
  sockaddr_storage address{};
  auto* const four = reinterpret_cast<sockaddr_in*>(&address);
  auto* const six = reinterpret_cast<sockaddr_in6*>(&address);
  socklen_t size = sizeof *four;
  const auto port = htons(static_cast<std::uint16_t>(options.port));
  if (inet_pton(AF_INET, options.address.c_str(), &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = port;
  } else if (inet_pton(AF_INET6, options.address.c_str(), &six->sin6_addr) == 1) {
    six->sin6_family = AF_INET6;
    six->sin6_port = port;
    size = sizeof *six;
  } else {
    return cannot_listen(options, EINVAL);
  }
  const int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const bool bound = fd >= 0 && bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     ::listen(fd, static_cast<int>(kMostConnections)) == 0 &&
                     getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  if (!bound) {
    const int error = errno;
    if (fd >= 0) close(fd);
    return cannot_listen(options, error);
  }
  const int chosen = ntohs(address.ss_family == AF_INET ? four->sin_port : six->sin6_port);
  return std::unique_ptr<HttpServer>(new BeastServer(std::move(options), fd, chosen));
}

}  // namespace dtrun::rendezvous
