// The cluster's state as metrics.
#pragma once

#include <string>
#include <vector>

#include "coordinator/metrics/snapshot.h"
#include "prometheus/metric_family.h"

namespace skein::coordinator {

// A pure function. Every family is there, if only with its name and help; counters of replicas run
// since these began, and go with their job.
std::vector<prometheus::MetricFamily> FamiliesOf(const MetricsSnapshot& snapshot,
                                                 const std::string& version);

}  // namespace skein::coordinator
