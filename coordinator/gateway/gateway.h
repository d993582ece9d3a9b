// The HTTP API: OpenAI's and Anthropic's routes, and those by which operators and their tools ask.
// Each endpoint has a file of its own; this is the table of them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/gateway/api_call.h"
#include "coordinator/gateway/gatekeeper.h"
#include "coordinator/gateway/http_server.h"
#include "coordinator/service/inference_service.h"

namespace skein::coordinator {

// What is not the gateway's own. Called by any thread.
struct GatewayHooks {
  // What GET /v1/status answers, as JSON, and GET /v1/picture?job=ID, as SVG, or NotFound.
  std::function<std::string()> status;
  std::function<absl::StatusOr<std::string>(const std::string& job)> picture;
  // Answers GET /metrics; null: nothing is there.
  std::function<std::unique_ptr<HttpAnswer>()> metrics;
  // An answer has begun. `route`: a path of the table, "other", or "refused" by the server itself.
  std::function<void(std::string_view route, int status)> on_answer = [](std::string_view, int) {};
};

class Gateway {
 public:
  // The service outlives it. Nothing listens before Start.
  explicit Gateway(InferenceService* service, Gatekeeper::Options gatekeeper = {},
                   GatewayHooks hooks = {});
  ~Gateway();

  // HttpServer::Start's errors.
  absl::Status Start(const HttpServerOptions& options);
  const std::string& address() const { return server_->address(); }
  // See HttpServer. Nothing where it was not started.
  absl::Status ReloadTls() { return server_ == nullptr ? absl::OkStatus() : server_->ReloadTls(); }
  void Shutdown(absl::Duration grace);

  // What a request is answered with, once it listens. Any thread.
  std::unique_ptr<HttpAnswer> Handle(const HttpRequest& request, const HttpServer::Wake& wake);

 private:
  std::unique_ptr<HttpAnswer> Choose(const HttpRequest& request, const serving::ApiKey* key,
                                     ApiCall call);

  InferenceService* const service_;
  const Gatekeeper::Options gatekeeper_options_;
  const GatewayHooks hooks_;
  std::optional<Gatekeeper> gatekeeper_;
  const int64_t started_ = absl::ToUnixSeconds(absl::Now());
  std::unique_ptr<HttpServer> server_;
};

}  // namespace skein::coordinator
