#include "agent/link.h"

#include <sys/eventfd.h>

#include <thread>
#include <vector>

#include "agent/local_address.h"
#include "proto/base/ids.h"
#include "rendezvous/client/peer_links.h"
#include "rendezvous/http/open_page.h"
#include "rendezvous/wire/election.h"
#include "rendezvous/wire/grpc_setup.h"

namespace dtrun::agent {
namespace {

constexpr std::chrono::milliseconds kAskAgain{500}, kAskLater{2000};
constexpr int kTimesToAsk = 30;

// The rest of a message on a node that may not come in, after its address.
std::string turned_away(const rendezvous::JobKey& key) {
  return " was turned away: it has another job key than this node (" + key.fingerprint() +
         (key.source().empty() ? "" : ", " + key.source()) + "), or none";
}

}  // namespace

void Link::Mailbox::post(Job job) {
  {
    std::lock_guard lock(mutex);
    jobs.push_back(std::move(job));
  }
  eventfd_write(wake.get(), 1);
}

Link::Link(const RendezvousSpec& spec, const Times& times, const std::string& run_id, std::string member_id,
           std::size_t unauthenticated_files, Loop& loop, Sink sink, Tells tells)
    : spec_(spec),
      times_(times),
      list_(std::get_if<Candidates>(&spec.hosting)),
      list_name_(list_ != nullptr ? list_of(*list_, run_id) : ""),
      ports_(ports_of(spec.hosting)),
      member_id_(std::move(member_id)),
      unauthenticated_files_(unauthenticated_files),
      loop_(loop),
      sink_(std::move(sink)),
      tells_(std::move(tells)),
      mailbox_(std::make_shared<Mailbox>()) {
  mailbox_->wake.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  host_ = rendezvous::list_text(hosts_of(spec.hosting));
  port_ = ports_.empty() ? 0 : ports_.front();
  if (spec.key) key_ = *spec.key;
  loop_.watch(mailbox_->wake.get(), EPOLLIN, [this](std::uint32_t) { deliver(); });
}

Link::~Link() {
  client_.reset();
  if (page_) loop_.forget(page_->listener());
  loop_.forget(mailbox_->wake.get());
}

Result<std::unique_ptr<Link>> Link::start(const RendezvousSpec& spec, const Times& times,
                                          const std::string& run_id, const std::string& member_id,
                                          std::size_t unauthenticated_files, Scratch& scratch, Loop& loop,
                                          Sink sink, Tells tells) {
  std::unique_ptr<Link> link(new Link(spec, times, run_id, member_id, unauthenticated_files, loop,
                                      std::move(sink), std::move(tells)));
  RETURN_IF_ERROR(std::visit([&](const auto& kind) { return link->begin(kind, scratch); }, spec.hosting));
  return link;
}

// Every user of the machine could connect to a port on loopback; a socket in this user's own folder is
// private.
Status Link::begin(const Standalone&, Scratch& scratch) {
  if (Status made = scratch.make(); !made.ok())
    return Status(made.exit_code(), made.message() + "; set TMPDIR to a directory that can be written");
  host_ = rendezvous::unix_endpoint(coordinator_socket_in(scratch.path()));
  RETURN_IF_ERROR(host_on(host_));
  start_client();
  return {};
}

Status Link::begin(const External&, Scratch&) {
  start_client();
  return {};
}

Status Link::begin(const FixedHost& fixed, Scratch&) {
  if (!fixed.listen_address) {
    resolve_and_join(fixed.host);
    return {};
  }
  (void)host_on(*fixed.listen_address);
  start_client();
  return {};
}

// The search for this host's place in the list runs beside: joining does not depend on it.
Status Link::begin(const Candidates& list, Scratch&) {
  start_client();
  own_place_ = list.own.value_or(-1);
  if (!list.own) find_own_place(list);
  if (own_place_ >= 0) (void)host_on(list.listen_address);
  return {};
}

// Finds the first host of the list that is this machine. As in resolve_and_join() a name may be known later,
// or be another machine's at first; a host of the list has found itself after a minute, so the search then
// ends.
void Link::find_own_place(const Candidates& list) {
  std::thread([this, mailbox = std::weak_ptr(mailbox_), hosts = list.hosts] {
    bool all_known = false;
    for (int asked = 0; !mailbox.expired() && (!all_known || asked < kTimesToAsk); ++asked) {
      all_known = true;
      for (int place = 0; place < static_cast<int>(hosts.size()); ++place) {
        const Home home = home_of(hosts[static_cast<std::size_t>(place)]);
        all_known = all_known && home.known;
        if (!home.listen_address) continue;
        if (const auto box = mailbox.lock())
          box->post([this, place, address = *home.listen_address] {
            own_place_ = place;
            (void)host_on(address);
          });
        return;
      }
      std::this_thread::sleep_for(all_known ? kAskLater : kAskAgain);
    }
  }).detach();
}

// A look-up cannot be interrupted, so the thread is detached and puts its result into the mailbox. A job in
// the mailbox may use the link: only the link's own loop runs jobs. A starting container may not know its own
// name yet, and the name service may still have the address of the container that it replaces: so the look-up
// is repeated until a coordinator answers there.
void Link::resolve_and_join(const std::string& host) {
  std::thread([this, mailbox = std::weak_ptr(mailbox_), host] {
    const auto post = [&mailbox](Job job) {
      if (const auto box = mailbox.lock()) box->post(std::move(job));
    };
    const auto wanted = [&mailbox] {
      const auto box = mailbox.lock();
      return box && !box->answered;
    };
    Home home = home_of(host);
    post([this, home] {
      if (home.listen_address) (void)host_on(*home.listen_address);
      start_client();
    });
    if (home.listen_address) return;
    while (!home.listen_address && wanted()) {
      std::this_thread::sleep_for(home.known ? kAskLater : kAskAgain);
      home = home_of(host);
    }
    if (home.listen_address) post([this, home] { (void)host_on(*home.listen_address); });
  }).detach();
}

// A taken port is a failure only for a standalone job: another agent of this host may host the coordinator
// there. The client finds out whether it does.
Status Link::host_on(const std::string& listen_address) {
  listen_address_ = listen_address;
  rendezvous::ServerOptions options{.bind_address = listen_address,
                                    .host = member_id_,
                                    .key = key_,
                                    .unauthenticated_files = unauthenticated_files_,
                                    .times = times_};
  if (key_)
    options.turned_away = [this, mailbox = std::weak_ptr(mailbox_),
                           words = turned_away(*key_)](const std::string& address) {
      if (const auto box = mailbox.lock()) box->post([this, line = address + words] { tells_.notice(line); });
    };
  if (list_ != nullptr) {
    const int count = static_cast<int>(list_->hosts.size());
    options.candidate = {.settings = rendezvous::election::settings_for(count, own_place_, list_->alone,
                                                                        rendezvous::merged_runs),
                         .list = list_name_,
                         .peers = rendezvous::peers_on(list_->hosts, own_place_, ports_, key_, list_name_)};
    if (list_->first_start) options.candidate->settings.abstain = 0;
    options.leads = [this, mailbox = std::weak_ptr(mailbox_)] {
      if (const auto box = mailbox.lock()) box->post([this] { show_page(); });
    };
  }
  // A Unix socket has no port.
  const std::vector<int> ports = ports_.empty() ? std::vector{0} : ports_;
  Status first;
  for (const int port : ports) {
    options.port = port;
    auto server = rendezvous::Server::start(options);
    if (!server.ok() && first.ok()) first = server.status();
    if (!server.ok()) continue;
    server_ = std::move(server).value();
    port_ = port;
    if (list_ == nullptr) show_page();
    return {};
  }
  return first;
}

// A page that cannot be shown is no reason not to run the job. Nobody has to look: a thread comes with the
// first connection.
void Link::show_page() {
  if (page_ || !spec_.page.port) return;
  const std::string host = host_name();
  auto page = rendezvous::open_page(*server_, {.port = *spec_.page.port,
                                               .address = spec_.page.address,
                                               .key = key_,
                                               .endpoint = endpoint(),
                                               .host = host});
  if (!page.ok()) return tells_.notice(page.status().message());
  page_ = std::move(page).value();
  loop_.watch(page_->listener(), EPOLLIN, [this](std::uint32_t) {
    loop_.forget(page_->listener());
    page_->serve();
  });
  tells_.page(rendezvous::page_text(page_->url(), host, spec_.page.in_pod));
}

void Link::start_client() {
  rendezvous::ClientOptions options;
  options.host = host_;
  options.endpoint_from = spec_.endpoint_from;
  options.port = port_;
  if (list_ != nullptr) {
    options.hosts = list_->hosts;
    // Several hosts need not all have the same port of a row.
    options.port = ports_.front();
    if (ports_.size() > 1) options.list = list_name_;
  }
  if ((!server_ || list_ != nullptr) && ports_.size() > 1)
    options.more_ports.assign(ports_.begin() + 1, ports_.end());
  options.key = key_;
  options.keep_alive_timeout = spec_.keep_alive_timeout;
  options.times = times_;
  client_ = rendezvous::Client::start(options, [this](rendezvous::ClientEvent event) {
    mailbox_->post([this, event = std::move(event)]() mutable { hear(std::move(event)); });
  });
}

// If no coordinator answers although the port was taken, its holder was another program's connection or a
// coordinator at its end: the port may be free by now.
void Link::hear(rendezvous::ClientEvent event) {
  if (const auto* const connected = std::get_if<rendezvous::Connected>(&event)) {
    connected_ = mailbox_->answered = true;
    port_ = connected->port;
  }
  if (const auto* const received = std::get_if<rendezvous::Received>(&event))
    if (received->message.has_join_ack()) stores_host_ = received->message.join_ack().separate();
  auto* const disconnected = std::get_if<rendezvous::Disconnected>(&event);
  // If several hosts may lead, another agent on this host, which did its part, may have ended. A `dtrun
  // store` is no agent's: it serves other runs too.
  const bool may_host = !connected_ || (list_ != nullptr && !stores_host_);
  if (disconnected != nullptr && may_host && !server_ && listen_address_) {
    const Status hosted = host_on(*listen_address_);
    if (hosted.exit_code() == kExitNoPermission && !disconnected->permanent)
      *disconnected = {.why = hosted, .permanent = true, .attempt = disconnected->attempt};
  }
  sink_(std::move(event));
}

std::string Link::endpoint() const { return rendezvous::endpoint_text(host_, port_); }

void Link::deliver() {
  eventfd_t ignored;
  eventfd_read(mailbox_->wake.get(), &ignored);
  std::deque<Job> jobs;
  {
    std::lock_guard lock(mailbox_->mutex);
    jobs.swap(mailbox_->jobs);
  }
  for (Job& job : jobs) job();
}

void Link::send(const rendezvous::v1::FromAgent& message) {
  if (client_) client_->send(message);
}

void Link::kv(int worker_serial, const std::string& prefix, const control::KvRequest& request) {
  if (client_) client_->kv(worker_serial, prefix, request);
}

void Link::close(std::chrono::milliseconds timeout) {
  if (client_) client_->close(timeout);
}

}  // namespace dtrun::agent
