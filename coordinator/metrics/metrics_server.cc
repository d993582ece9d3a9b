#include "coordinator/metrics/metrics_server.h"

#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace skein::coordinator {
namespace {

using AnswerPointer = std::unique_ptr<HttpAnswer>;

AnswerPointer Plain(int status, const std::string& text, HttpHeaders headers = {}) {
  return std::make_unique<WholeAnswer>(HttpHead{.status = status,
                                                .content_type = "text/plain; charset=utf-8",
                                                .headers = std::move(headers)},
                                       text + "\n");
}

AnswerPointer Handle(const HttpRequest& request, const Metrics& metrics) {
  if (request.path != "/metrics" && request.path != "/health") {
    return Plain(404, absl::StrCat("there is no ", request.path, " here; there is /metrics"));
  }
  if (request.method != "GET" && request.method != "HEAD") {
    return Plain(405, absl::StrCat(request.path, " takes GET"), {{"Allow", "GET"}});
  }
  if (request.path == "/metrics") return MetricsAnswer(metrics);
  return std::make_unique<WholeAnswer>(HttpHead{}, R"({"status":"ok"})");
}

}  // namespace

std::unique_ptr<HttpAnswer> MetricsAnswer(const Metrics& metrics) {
  return std::make_unique<WholeAnswer>(HttpHead{.content_type = Metrics::kContentType},
                                       metrics.Text());
}

absl::Status MetricsServer::Start(const std::string& listen) {
  const HttpServerOptions options = {
      .listen = listen, .threads = 1, .handler_threads = 1, .max_connections = 64};
  SKEIN_ASSIGN_OR_RETURN(
      server_,
      HttpServer::Start(
          options,
          [this](const HttpRequest& request, const HttpServer::Wake& /*wake*/) {
            return Handle(request, *metrics_);
          },
          [](int status, std::string_view why) { return Plain(status, std::string(why)); }));
  return absl::OkStatus();
}

void MetricsServer::Shutdown(absl::Duration grace) {
  if (server_ != nullptr) server_->Shutdown(grace);
}

}  // namespace skein::coordinator
