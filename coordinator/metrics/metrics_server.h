// Metrics over HTTP.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "coordinator/gateway/http_server.h"
#include "coordinator/metrics/metrics.h"

namespace skein::coordinator {

// The metrics as they are now. Any thread.
std::unique_ptr<HttpAnswer> MetricsAnswer(const Metrics& metrics);

// Answers GET /metrics and GET /health alone, so that who may scrape may not ask. Owned by one
// thread; its own threads answer.
class MetricsServer {
 public:
  // The metrics outlive it. Nothing listens before Start.
  explicit MetricsServer(const Metrics* metrics) : metrics_(metrics) {}

  // HttpServer::Start's errors.
  absl::Status Start(const std::string& listen);
  const std::string& address() const { return server_->address(); }  // HOST:PORT, once started
  // See HttpServer. Nothing where it was not started.
  void Shutdown(absl::Duration grace);

 private:
  const Metrics* const metrics_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace skein::coordinator
