#include "coordinator/metrics/metrics.h"

#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "coordinator/metrics/request_metrics.h"
#include "coordinator/metrics/snapshot_metrics.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/registry.h"
#include "prometheus/text_serializer.h"

namespace skein::coordinator {

struct Metrics::Parts {
  explicit Parts(Options o)
      : options(std::move(o)),
        of_no_model(registry),
        http(prometheus::BuildCounter()
                 .Name("skein_http_requests_total")
                 .Help("HTTP requests whose answer has begun, by route and status.")
                 .Register(registry)) {}

  const Options options;
  prometheus::Registry registry;
  RefusalMetrics of_no_model;
  prometheus::Family<prometheus::Counter>& http;
  Mutex mutex;
  std::map<std::string, RequestMetrics> of_models ABSL_GUARDED_BY(mutex);  // by name
};

Metrics::Metrics(Options options) : parts_(std::make_unique<Parts>(std::move(options))) {}
Metrics::~Metrics() = default;

RequestObserver& Metrics::observer(const std::string& model_name, int64_t context_length) {
  MutexLock lock(&parts_->mutex);
  return parts_->of_models.try_emplace(model_name, parts_->registry, model_name, context_length)
      .first->second;
}

RequestObserver& Metrics::of_no_model() { return parts_->of_no_model; }

void Metrics::OnHttpAnswer(std::string_view route, int status) {
  parts_->http.Add({{"route", std::string(route)}, {"status", absl::StrCat(status)}}).Increment();
}

std::string Metrics::Text() const {
  std::vector<prometheus::MetricFamily> families = parts_->registry.Collect();
  std::vector<prometheus::MetricFamily> now =
      FamiliesOf(parts_->options.snapshot(), parts_->options.version);
  families.insert(families.end(), std::make_move_iterator(now.begin()),
                  std::make_move_iterator(now.end()));
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace skein::coordinator
