#include "coordinator/metrics/metrics.h"

#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/metrics/request_metrics.h"
#include "coordinator/metrics/snapshot_metrics.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/gauge.h"
#include "prometheus/registry.h"
#include "prometheus/text_serializer.h"

namespace skein::coordinator {

struct Metrics::Parts {
  explicit Parts(Options o)
      : options(std::move(o)),
        requests(registry, options.context_length),
        http(prometheus::BuildCounter()
                 .Name("skein_http_requests_total")
                 .Help("HTTP requests whose answer has begun, by route and status.")
                 .Register(registry)) {
    prometheus::BuildGauge()
        .Name("skein_info")
        .Help("Always 1; the labels tell what runs.")
        .Register(registry)
        .Add({{"model_name", options.model_name}, {"version", options.version}})
        .Set(1);
  }

  const Options options;
  prometheus::Registry registry;
  RequestMetrics requests;
  prometheus::Family<prometheus::Counter>& http;
};

Metrics::Metrics(Options options) : parts_(std::make_unique<Parts>(std::move(options))) {}
Metrics::~Metrics() = default;

RequestObserver& Metrics::observer() { return parts_->requests; }

void Metrics::OnHttpAnswer(std::string_view route, int status) {
  parts_->http.Add({{"route", std::string(route)}, {"status", absl::StrCat(status)}}).Increment();
}

std::string Metrics::Text() const {
  std::vector<prometheus::MetricFamily> families = parts_->registry.Collect();
  std::vector<prometheus::MetricFamily> now = FamiliesOf(parts_->options.snapshot());
  families.insert(families.end(), std::make_move_iterator(now.begin()),
                  std::make_move_iterator(now.end()));
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace skein::coordinator
