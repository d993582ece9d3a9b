#include "coordinator/gateway/gateway.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/host_port.h"
#include "base/json/json.h"
#include "base/status_macros.h"
#include "coordinator/gateway/api_call.h"
#include "coordinator/gateway/api_error.h"
#include "coordinator/gateway/body_reader.h"
#include "coordinator/gateway/chat.h"
#include "coordinator/gateway/completions.h"
#include "coordinator/gateway/embeddings.h"
#include "coordinator/gateway/json_answer.h"
#include "coordinator/gateway/messages.h"
#include "coordinator/gateway/responses.h"
#include "coordinator/gateway/text_tools.h"
#include "coordinator/gateway/watched_answer.h"
#include "coordinator/page/page.h"
#include "coordinator/service/access_log.h"
#include "coordinator/service/call_record.h"
#include "coordinator/service/kept_answers.h"
#include "coordinator/service/model_registry.h"
#include "coordinator/service/response_id.h"
#include "coordinator/service/served_model.h"
#include "coordinator/service/trace_id.h"
#include "spdlog/spdlog.h"

namespace skein::coordinator {
namespace {

using nlohmann::json;
using Json = nlohmann::ordered_json;
using AnswerPointer = std::unique_ptr<HttpAnswer>;

// Requests nest as deep as tools' schemas do; a prompt may be some 100,000 ids.
constexpr JsonLimits kBodyLimits = {.max_depth = 64, .max_values = 4 << 20};

struct Asked {
  const HttpRequest& http;
  const json& body;  // an object; of GET: empty
  InferenceService& service;
  const GatewayHooks& hooks;
  const ApiCall& call;
  int64_t started;
  const serving::ApiKey* key;                // null: none was asked for
  std::shared_ptr<const ServedModel> model;  // of POST: that the body names
};

Json ModelJson(const Asked& asked, const HostedModel& hosted) {
  const ServedModel& model = *hosted.model;
  return {{"id", model.name},
          {"object", "model"},
          {"created", asked.started},
          {"owned_by", "skein"},
          {"max_model_len", model.context_length},
          {"aliases", model.aliases},
          {"state", hosted.state()}};
}

// Those that the key may use.
AnswerPointer Models(const Asked& asked) {
  Json list = Json::array();
  for (const HostedModel& hosted : asked.service.models().All()) {
    if (Gatekeeper::Allows(asked.key, *hosted.model)) list.push_back(ModelJson(asked, hosted));
  }
  for (const std::string& name : asked.service.models().Loading()) {
    if (asked.key != nullptr && !asked.key->models.empty()) break;
    list.push_back({{"id", name},
                    {"object", "model"},
                    {"created", asked.started},
                    {"owned_by", "skein"},
                    {"state", ModelRegistry::kLoading}});
  }
  return JsonAnswer({{"object", "list"}, {"data", std::move(list)}});
}

// What is wrong with the name, or with this key's use of the model.
std::optional<ApiError> CheckModel(const absl::StatusOr<HostedModel>& hosted, std::string_view name,
                                   const Asked& asked) {
  const serving::ApiKey* const key = asked.key;
  if (!hosted.ok()) {
    ApiError error = ErrorOf(hosted.status());
    if (key == nullptr || key->models.empty() || !absl::IsNotFound(hosted.status())) return error;
    // The registry's message names all that is served.
    std::vector<HostedModel> usable = asked.service.models().All();
    std::erase_if(usable,
                  [&](const HostedModel& of) { return !Gatekeeper::Allows(key, *of.model); });
    error.message = absl::StrCat("model: name one that is served and that this API key may use: ",
                                 NamesOf(usable));
    return error;
  }
  if (Gatekeeper::Allows(key, *hosted->model)) return std::nullopt;
  return Gatekeeper::NotAllowed(absl::StrCat("the model '", std::string(name), "'"));
}

AnswerPointer Model(const Asked& asked, std::string_view name) {
  const absl::StatusOr<HostedModel> hosted = asked.service.models().Find(name);
  if (const auto error = CheckModel(hosted, name, asked)) return ToAnswer(*error);
  return JsonAnswer(ModelJson(asked, *hosted));
}

// The process lives; whether it can answer, Ready says.
AnswerPointer Health(const Asked& /*asked*/) { return JsonAnswer({{"status", "ok"}}); }

AnswerPointer Ready(const Asked& asked) {
  if (asked.service.models().serving()) return JsonAnswer({{"status", "ready"}});
  return ToAnswer({.status = 503, .message = "no replica serves", .code = "not_ready"});
}

AnswerPointer Page(const Asked& /*asked*/) {
  return std::make_unique<WholeAnswer>(
      HttpHead{.content_type = "text/html; charset=utf-8",
               .headers = {{"Content-Security-Policy", PagePolicy()},
                           {"Cache-Control", "no-cache"},
                           {"Referrer-Policy", "no-referrer"},
                           {"X-Content-Type-Options", "nosniff"}}},
      PageHtml());
}

AnswerPointer Status(const Asked& asked) {
  return std::make_unique<WholeAnswer>(HttpHead{.headers = {{"Cache-Control", "no-store"}}},
                                       asked.hooks.status());
}

// Job ids are random digits; one that is written otherwise than it is names no job.
AnswerPointer Picture(const Asked& asked) {
  constexpr std::string_view kJob = "job=";
  const std::string_view query = asked.http.query;
  if (!query.starts_with(kJob)) return ToAnswer(BadField("job", "?job=ID is expected"));
  absl::StatusOr<std::string> svg = asked.hooks.picture(std::string(query.substr(kJob.size())));
  if (!svg.ok()) {
    return ToAnswer({.status = 404,
                     .message = std::string(svg.status().message()),
                     .param = "job",
                     .code = "job_not_found"});
  }
  // Whoever opens it as a page of its own runs nothing.
  return std::make_unique<WholeAnswer>(
      HttpHead{.content_type = "image/svg+xml",
               .headers = {{"Content-Security-Policy",
                            "default-src 'none'; style-src 'unsafe-inline'; sandbox"},
                           {"Cache-Control", "no-store"},
                           {"X-Content-Type-Options", "nosniff"}}},
      *std::move(svg));
}

struct Route {
  std::string_view method, path;
  AnswerPointer (*answer)(const Asked&);
  bool generates = false;  // what it refuses counts as requests that are refused
};

constexpr Route kRoutes[] = {
    {"GET", "/", Page},
    {"GET", "/v1/status", Status},
    {"GET", "/v1/picture", Picture},
    {"GET", "/v1/models", Models},
    {"POST", "/v1/completions",
     [](const Asked& asked) {
       return Complete(asked.body, *asked.model, &asked.service, asked.call);
     },
     /*generates=*/true},
    {"POST", "/v1/chat/completions",
     [](const Asked& asked) { return Chat(asked.body, *asked.model, &asked.service, asked.call); },
     /*generates=*/true},
    {"POST", "/v1/responses",
     [](const Asked& asked) {
       return Responses(asked.body, *asked.model, &asked.service, asked.call);
     },
     /*generates=*/true},
    {"POST", "/v1/embeddings",
     [](const Asked& asked) { return Embed(asked.body, *asked.model, &asked.service, asked.call); },
     /*generates=*/true},
    {"POST", "/v1/messages",
     [](const Asked& asked) {
       return Messages(asked.body, *asked.model, &asked.service, asked.call);
     },
     /*generates=*/true},
    {"POST", "/v1/messages/count_tokens",
     [](const Asked& asked) { return CountTokens(asked.body, *asked.model); }},
    {"POST", "/apply-template",
     [](const Asked& asked) { return ApplyTemplate(asked.body, *asked.model); }},
    {"POST", "/tokenize", [](const Asked& asked) { return Tokenize(asked.body, *asked.model); }},
    {"POST", "/detokenize",
     [](const Asked& asked) { return Detokenize(asked.body, *asked.model); }},
    {"GET", "/health", Health},
    {"GET", "/ready", Ready},
};
constexpr std::string_view kModelPath = "/v1/models/";
constexpr std::string_view kAnswerMethods = "DELETE, GET";  // of kAnswersPath
constexpr std::string_view kMetricsPath = "/metrics";
constexpr std::string_view kRefused = "refused";  // by the server, before there is a route

// The request's route for those who count, which are few: "other" where there is none.
std::string_view RouteOf(const HttpRequest& request) {
  if (request.path == kMetricsPath) return kMetricsPath;
  if (request.path.starts_with(kModelPath)) return kModelPath;
  if (request.path.starts_with(kAnswersPath)) return kAnswersPath;
  for (const Route& route : kRoutes) {
    if (route.path == request.path) return route.path;
  }
  return "other";
}

// Load balancers, kubelets, Prometheus and open status pages ask it every few seconds.
bool IsRoutine(std::string_view route) {
  return route == "/health" || route == "/ready" || route == "/v1/status" ||
         route == "/v1/picture" || route == kMetricsPath;
}

// Clients may invent others, of any length.
std::string_view MethodOf(const HttpRequest& request) {
  for (const std::string_view method :
       {"GET", "POST", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"}) {
    if (request.method == method) return method;
  }
  return "other";
}

// Of a request that is in several traces, none.
std::string TraceOf(const HttpRequest& request) {
  std::string_view trace;
  int count = 0;
  for (const auto& [name, value] : request.headers) {
    if (!absl::EqualsIgnoreCase(name, "traceparent")) continue;
    trace = TraceIdOf(value);
    ++count;
  }
  return std::string(count == 1 ? trace : "");
}

AnswerPointer NoSuchRoute(const HttpRequest& request) {
  std::vector<std::string> methods;
  for (const Route& route : kRoutes) {
    if (route.path == request.path) methods.emplace_back(route.method);
  }
  if (request.path.starts_with(kAnswersPath)) methods.emplace_back(kAnswerMethods);
  if (methods.empty()) {
    return ToAnswer({.status = 404, .message = absl::StrCat("there is no ", request.path)});
  }
  const std::string allowed = absl::StrJoin(methods, ", ");
  const ApiError error = {
      .status = 405,
      .message = absl::StrCat(request.path, " takes ", allowed, ", not ", request.method)};
  return JsonAnswer(ToJson(error), {.status = 405, .headers = {{"Allow", allowed}}});
}

absl::StatusOr<json> ParseBody(const HttpRequest& request) {
  SKEIN_ASSIGN_OR_RETURN(json body, ParseJson(request.body, kBodyLimits));
  if (!body.is_object()) return absl::InvalidArgumentError("the body is no JSON object");
  return body;
}

// Pages of other sites can send what says something else, or nothing, from a user's browser.
bool SaysJson(const HttpRequest& request) {
  const std::string_view type = request.Header("Content-Type");
  const std::string_view media = type.substr(0, type.find(';'));
  return media.find("json") != std::string_view::npos;
}

// ---- Answers that are kept ----

// The events of a kept answer that come behind the last one that its client has, as they would have
// come in the stream that it asked for.
AnswerPointer GoOn(const Asked& asked, std::shared_ptr<KeptAnswer> kept) {
  const KeptHead& head = kept->head();
  const std::string_view said = asked.http.Header("Last-Event-ID");
  int64_t last_event = 0;
  if (!said.empty() &&
      (!absl::SimpleAtoi(absl::string_view(said.data(), said.size()), &last_event) ||
       last_event < 0)) {
    return ToAnswer({.message = "Last-Event-ID: a number is expected, as events of answers have"});
  }
  if (kept->model() == nullptr) {
    return ToAnswer({.status = 409,
                     .message = absl::StrCat("the model '", head.model,
                                             "' that began this answer is not served any more, or "
                                             "has changed"),
                     .code = "model_changed"});
  }
  if (const auto& record = CallRecord::Current()) record->Concerns(LoggedId(head.id));
  const auto* const route = std::find_if(std::begin(kRoutes), std::end(kRoutes),
                                         [&](const Route& of) { return of.path == head.route; });
  absl::StatusOr<json> body = ParseJson(head.body, kBodyLimits);
  if (route == std::end(kRoutes) || !body.ok()) {
    return ToAnswer({.status = 500, .message = "this answer's request cannot be read any more"});
  }
  const ApiCall call = {.wake = asked.call.wake,
                        .name = {.random = RandomOfId(head.id), .created = head.arrived},
                        .route = head.route,
                        .body = head.body,
                        .key = head.key,
                        .model = kept->model(),
                        .count = nullptr,
                        .resumed = kept,
                        .last_event = last_event};
  return route->answer({asked.http, *body, asked.service, asked.hooks, call, asked.started,
                        asked.key, kept->model()});
}

AnswerPointer OfKept(const Asked& asked) {
  if (asked.http.method != "GET" && asked.http.method != "DELETE") return NoSuchRoute(asked.http);
  const std::string_view id = std::string_view(asked.http.path).substr(kAnswersPath.size());
  absl::StatusOr<std::shared_ptr<KeptAnswer>> kept =
      FindKept(asked.service, id, {.http = true, .key = asked.call.key});
  if (!kept.ok()) {
    return ToAnswer({.status = 404,
                     .message = std::string(kept.status().message()),
                     .code = "answer_not_found"});
  }
  if (asked.http.method == "GET") return GoOn(asked, *std::move(kept));
  if (const auto& record = CallRecord::Current()) record->Concerns(LoggedId(id));
  asked.service.kept()->Discard(*kept);
  return JsonAnswer({{"id", std::string(id)}, {"object", "answer"}, {"deleted", true}});
}

}  // namespace

Gateway::Gateway(InferenceService* service, Gatekeeper::Options gatekeeper, GatewayHooks hooks)
    : service_(service), gatekeeper_options_(std::move(gatekeeper)), hooks_(std::move(hooks)) {}
Gateway::~Gateway() { Shutdown(absl::ZeroDuration()); }

absl::Status Gateway::Start(const HttpServerOptions& options) {
  SKEIN_ASSIGN_OR_RETURN(const HostPort address, ParseHostPort(options.listen));
  gatekeeper_.emplace(address, gatekeeper_options_);
  SKEIN_ASSIGN_OR_RETURN(server_,
                         HttpServer::Start(
                             options,
                             [this](const HttpRequest& request, const HttpServer::Wake& wake) {
                               return Handle(request, wake);
                             },
                             [this](int status, std::string_view why) {
                               hooks_.on_answer(kRefused, status);
                               LogAccess({.protocol = "http",
                                          .method = "",
                                          .route = kRefused,
                                          .status = absl::StrCat(status)},
                                         CallRecord(CallRecord::Caller()));
                               return ToAnswer({.status = status, .message = std::string(why)});
                             }));
  return absl::OkStatus();
}

void Gateway::Shutdown(absl::Duration grace) {
  if (server_ != nullptr) server_->Shutdown(grace);
}

std::unique_ptr<HttpAnswer> Gateway::Handle(const HttpRequest& request,
                                            const HttpServer::Wake& wake) {
  const absl::Time began = absl::Now();
  const std::string_view route = RouteOf(request);
  Gatekeeper::Verdict verdict = gatekeeper_->Judge(request, service_->models().All());
  ApiCall call = {.wake = wake,
                  .name = {.created = absl::Now()},
                  .route = route,
                  .body = request.body,
                  .key = verdict.key == nullptr ? "" : verdict.key->name,
                  .model = nullptr,
                  .count = nullptr,
                  .resumed = nullptr};
  if (verdict.admission != nullptr) {
    call.count = [admission = verdict.admission](int64_t tokens) { admission->AddAnswer(tokens); };
  }
  const auto record = std::make_shared<CallRecord>(
      CallRecord::Caller{.trace_id = TraceOf(request), .client = request.client, .key = call.key});
  const CallRecord::Scope scope(record);
  std::unique_ptr<HttpAnswer> answer =
      verdict.refusal.has_value() ? ToAnswer(*verdict.refusal)
                                  : Metered(Choose(request, verdict.key.get(), std::move(call)),
                                            std::move(verdict.admission));
  return std::make_unique<WatchedAnswer>(
      std::move(answer), [this, route](int status) { hooks_.on_answer(route, status); },
      EndedCall{.protocol = "http",
                .method = MethodOf(request),
                .route = route,
                .status = {},
                .is_routine = IsRoutine(route)},
      record, began);
}

std::unique_ptr<HttpAnswer> Gateway::Choose(const HttpRequest& request, const serving::ApiKey* key,
                                            ApiCall call) {
  const std::string method = request.method == "HEAD" ? "GET" : request.method;
  json body = json::object();
  Asked asked = {request, body, *service_, hooks_, call, started_, key, nullptr};
  if (method == "GET" && request.path == kMetricsPath && hooks_.metrics) {
    return hooks_.metrics();
  }
  if (method == "GET" && request.path.starts_with(kModelPath) && request.path != kModelPath) {
    return Model(asked, std::string_view(request.path).substr(kModelPath.size()));
  }
  if (request.path.starts_with(kAnswersPath)) return OfKept(asked);
  const auto* const route =
      std::find_if(std::begin(kRoutes), std::end(kRoutes),
                   [&](const Route& of) { return of.method == method && of.path == request.path; });
  if (route == std::end(kRoutes)) return NoSuchRoute(request);
  if (method == "POST") {
    if (!SaysJson(request)) {
      return ToAnswer({.status = 415, .message = "Content-Type: application/json is expected"});
    }
    absl::StatusOr<json> parsed = ParseBody(request);
    if (!parsed.ok()) return ToAnswer(ErrorOf(parsed.status()));
    body = *std::move(parsed);
    BodyReader reader(body);
    const std::string name = reader.String("model").value_or("");
    if (reader.error().has_value()) return ToAnswer(*reader.error());
    const absl::StatusOr<HostedModel> hosted =
        route->generates ? service_->Find(name) : service_->models().Find(name);
    if (const auto error = CheckModel(hosted, name, asked)) return ToAnswer(*error);
    asked.model = call.model = hosted->model;
  }
  return route->answer(asked);
}

}  // namespace skein::coordinator
