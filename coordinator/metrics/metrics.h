// All that a coordinator tells Prometheus: docs/metrics.md lists it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "coordinator/metrics/snapshot.h"
#include "coordinator/service/request_observer.h"

namespace skein::coordinator {

// Thread-safe. Owns the counts; what a snapshot holds is asked for by each scrape.
class Metrics {
 public:
  struct Options {
    std::string version;
    // Called by Text alone, on its thread.
    std::function<MetricsSnapshot()> snapshot;
  };
  static constexpr char kContentType[] = "text/plain; version=0.0.4; charset=utf-8";

  explicit Metrics(Options options);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // Of requests for a model, whose sequences have so many tokens at most. Lives as long as this;
  // for a model that was there before it is the same.
  RequestObserver& observer(const std::string& model_name, int64_t context_length);
  // Of requests that name no model that is served.
  RequestObserver& of_no_model();
  // An HTTP request was answered. `route`: one of few, not what a client makes up. Takes about as
  // long as a look-up in a hash map.
  void OnHttpAnswer(std::string_view route, int status);

  // In Prometheus' text format.
  std::string Text() const;

 private:
  struct Parts;
  const std::unique_ptr<Parts> parts_;
};

}  // namespace skein::coordinator
