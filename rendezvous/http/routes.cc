#include "rendezvous/http/routes.h"

#include <charconv>
#include <string_view>

#include "proto/core/contract.h"
#include "proto/core/text.h"
#include "proto/json/json.h"
#include "proto/web/web.h"
#include "rendezvous/http/access.h"
#include "rendezvous/http/page.h"
#include "rendezvous/text/exposition.h"
#include "rendezvous/text/history_json.h"
#include "rendezvous/text/status_text.h"

namespace dtrun::rendezvous {
namespace {

constexpr std::string_view kApi = "/api/v1/";

HttpReply refuse(int status, const std::string& why) { return {.status = status, .body = why + "\n"}; }

HttpReply json_reply(const Json& json) { return {.type = "application/json", .body = json_document(json)}; }

struct Asset {
  std::string_view path;
  const char* type;
  const std::string_view& body;
};
// They are the same for everybody, and a browser asks for them without the token.
constexpr const char* kScript = "text/javascript; charset=utf-8";
constexpr const char* kStyle = "text/css; charset=utf-8";
const Asset kAssets[] = {{"/page.js", kScript, kPageScript},       {"/ranks.js", kScript, kRanksScript},
                         {"/pictures.js", kScript, kPictures},     {"/dygraph.js", kScript, kDygraphs},
                         {"/page.css", kStyle, kPageStyle},        {"/pictures.css", kStyle, kPicturesStyle},
                         {"/dygraph.css", kStyle, kDygraphsStyle}, {"/icon.svg", "image/svg+xml", kPageIcon}};

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

std::string decoded(std::string_view text, bool plus_is_blank) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escape =
        text[i] == '%' && i + 2 < text.size() && digit_of(text[i + 1]) >= 0 && digit_of(text[i + 2]) >= 0;
    if (escape) {
      plain += static_cast<char>(digit_of(text[i + 1]) * 16 + digit_of(text[i + 2]));
      i += 2;
    } else {
      plain += plus_is_blank && text[i] == '+' ? ' ' : text[i];
    }
  }
  return plain;
}

// One request, with its target taken apart.
class Answering {
 public:
  Answering(const HttpRequest& request, bool trusted, const Site& site, double wall_now)
      : request_(request),
        trusted_(trusted),
        site_(site),
        wall_now_(wall_now),
        target_(parse_target(request.target)) {}

  HttpReply answer() const {
    if (request_.method != "GET" && request_.method != "HEAD") {
      HttpReply reply = refuse(405, "this page only shows: GET and HEAD");
      reply.headers.emplace_back("Allow", "GET, HEAD");
      return reply;
    }
    // Without trust in its connection a browser that another site led here has no token.
    if (trusted_ && !is_own_name(request_.host))
      return refuse(421, "this is the page of a dtrun coordinator, and not " + request_.host);
    HttpReply reply = route();
    reply.without_body = request_.method == "HEAD";
    return reply;
  }

 private:
  HttpReply route() const {
    for (const Asset& asset : kAssets)
      if (target_.path == asset.path) return {.type = asset.type, .body = std::string(asset.body)};
    if (target_.path == "/healthz") return {.body = "ok\n"};
    if (target_.path == "/") return page();
    if (target_.path == "/metrics") return metrics();
    if (target_.path == std::string(kApi) + "stream") return stream();
    if (target_.path == std::string(kApi) + "runs") return runs();
    const std::string runs_below = std::string(kApi) + "runs/";
    if (target_.path.starts_with(runs_below)) return of_run(target_.path.substr(runs_below.size()));
    return refuse(404, "there is no " + target_.path + " here; the page is at /");
  }

  bool opens(const std::string& run_id) const {
    if (trusted_) return true;
    const std::string token = site_.token(run_id);
    constexpr std::string_view kBearer = "Bearer ";
    const std::string_view shown = request_.authorization;
    const bool by_header = shown.starts_with(kBearer) && same_secret(shown.substr(kBearer.size()), token);
    return !token.empty() && (by_header || same_secret(target_.parameter("token"), token));
  }

  static HttpReply closed() {
    return refuse(
        403,
        "this page is for the user of the job on its own host; elsewhere and for others: the link that "
        "`dtrun status --open RUN_ID` prints");
  }

  // The runs that this request may see.
  std::vector<RunView> visible() const {
    std::vector<RunView> views = site_.look("", {});
    std::erase_if(views, [this](const RunView& view) { return !opens(view.status.run_id()); });
    return views;
  }

  HttpReply runs() const {
    const std::vector<RunView> views = visible();
    if (views.empty() && !trusted_) return closed();
    Json runs = Json::array();
    for (const RunView& view : views) runs.push_back(status_json(view.status, site_.endpoint));
    return json_reply(runs);
  }

  // The token of no run is that of a Prometheus, which may not know the names of runs to come.
  HttpReply metrics() const {
    std::vector<v1::RunStatus> runs;
    for (RunView& view : opens("") ? site_.look("", {}) : visible()) runs.push_back(std::move(view.status));
    if (runs.empty() && !trusted_) return closed();
    return {.type = kExpositionType, .body = site_.metrics(runs, wall_now_)};
  }

  // A run id may have slashes. One that is not known is not told from one that may not be seen.
  HttpReply of_run(const std::string& rest) const {
    for (const std::string part : {"/series", "/events", "/config", ""}) {
      if (!rest.ends_with(part)) continue;
      const std::string run_id = rest.substr(0, rest.size() - part.size());
      if (run_id.empty()) break;
      if (!opens(run_id)) return closed();
      const std::vector<RunView> views = site_.look(run_id, mark_of(target_.parameter("since")));
      if (!views.empty()) return of_view(views.front(), part);
    }
    return refuse(404, "no such run here");
  }

  HttpReply of_view(const RunView& view, const std::string& part) const {
    if (part.empty()) return json_reply(status_json(view.status, site_.endpoint));
    if (part == "/config") return config_reply(view);
    const ClockPair clock{.now = view.now, .wall_now = wall_now_};
    Json json{{"run_id", view.status.run_id()}, {"since", text_of(view.until)}};
    if (part == "/series") {
      json["series"] = series_json(view.history, clock);
      json["windows"] = windows_json(view.history, clock);
      json["life"] = life_json(view.history, clock);
    }
    if (part == "/events") json["events"] = events_json(view.history, clock);
    return {.type = "application/json", .body = json_line(json)};
  }

  HttpReply config_reply(const RunView& view) const {
    Json json{{"run_id", view.status.run_id()},
              {"version", site_.version},
              {"protocol", kRendezvousProtocol},
              {"command", view.command}};
    const Json config = parse_json(view.config);
    json["config"] = config.is_object() ? config : Json(nullptr);
    return json_reply(json);
  }

  HttpReply stream() const {
    std::string run_id = target_.parameter("run");
    if (run_id.empty()) {
      const std::vector<RunView> views = visible();
      if (views.empty()) return trusted_ ? refuse(404, "there is no run here") : closed();
      run_id = views.front().status.run_id();
    }
    if (!opens(run_id)) return closed();
    const std::string since =
        request_.last_event_id.empty() ? target_.parameter("since") : request_.last_event_id;
    return {.type = "text/event-stream", .stream = EventStream{.run_id = run_id, .mark = mark_of(since)}};
  }

  // With the text of `dtrun status` for browsers without JavaScript.
  HttpReply page() const {
    const std::string wanted = target_.parameter("run");
    std::string text;
    const std::vector<RunView> views = visible();
    if (views.empty() && !trusted_) return closed();
    for (const RunView& view : views)
      if (wanted.empty() || wanted == view.status.run_id())
        text += (text.empty() ? "" : "\n") + status_text(view.status, site_.endpoint);
    constexpr std::string_view kPlace = "@STATUS@";
    std::string body(kPage);
    body.replace(body.find(kPlace), kPlace.size(), html_escaped(text.empty() ? "no run\n" : text));
    return {.type = "text/html; charset=utf-8", .body = body};
  }

  const HttpRequest& request_;
  const bool trusted_;
  const Site& site_;
  const double wall_now_;
  const Target target_;
};

std::string event_text(const char* name, const Json& json, const std::string& id) {
  return "event: " + std::string(name) + (id.empty() ? "" : "\nid: " + id) + "\ndata: " + json_line(json) +
         "\n";
}

}  // namespace

const std::vector<std::pair<std::string, std::string>> kSafetyHeaders = {
    {"Content-Security-Policy",
     "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"},
    {"X-Content-Type-Options", "nosniff"},
    {"Referrer-Policy", "no-referrer"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
    {"Cache-Control", "no-store"}};

HttpReply answer(const HttpRequest& request, bool trusted, const Site& site, double wall_now) {
  return Answering(request, trusted, site, wall_now).answer();
}

std::string next_events(EventStream* stream, const Site& site, double wall_now) {
  const std::vector<RunView> views = site.look(stream->run_id, stream->mark);
  if (views.empty()) return "";
  const RunView& view = views.front();
  const ClockPair clock{.now = view.now, .wall_now = wall_now};
  std::string text;
  // A reader of another history has to forget it.
  const bool anew = stream->mark.history != view.until.history;
  const Json series = series_json(view.history, clock), windows = windows_json(view.history, clock);
  const Json life = life_json(view.history, clock), events = events_json(view.history, clock);
  if (anew || !series.empty() || !windows.empty() || !life.empty())
    text += event_text(
        "point",
        {{"anew", anew}, {"series", series}, {"windows", windows}, {"life", life}, {"now", wall_now}}, "");
  if (!events.empty() || anew) text += event_text("event", {{"anew", anew}, {"events", events}}, "");
  stream->mark = view.until;
  // The id comes last: a reader who has it has all before.
  return text + event_text("status", status_json(view.status, site.endpoint), text_of(view.until));
}

std::string text_of(const HistoryMark& mark) { return mark.history + "." + std::to_string(mark.serial); }

HistoryMark mark_of(const std::string& text) {
  const std::size_t dot = text.rfind('.');
  if (dot == text.npos) return {};
  HistoryMark mark{.history = text.substr(0, dot)};
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data() + dot + 1, end, mark.serial);
  return read.ec == std::errc() && read.ptr == end && mark.serial >= 0 ? mark : HistoryMark();
}

std::string Target::parameter(const std::string& name) const {
  for (const auto& [key, value] : parameters)
    if (key == name) return value;
  return "";
}

Target parse_target(const std::string& target) {
  const std::size_t question = std::min(target.find('?'), target.size());
  Target parsed{.path = decoded(target.substr(0, question), false), .parameters = {}};
  for (const std::string& pair : split(target.substr(std::min(question + 1, target.size())), '&')) {
    const std::size_t equals = std::min(pair.find('='), pair.size());
    parsed.parameters.emplace_back(decoded(pair.substr(0, equals), true),
                                   decoded(pair.substr(std::min(equals + 1, pair.size())), true));
  }
  return parsed;
}

}  // namespace dtrun::rendezvous
