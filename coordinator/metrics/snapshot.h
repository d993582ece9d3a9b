// What a scrape looks at.
#pragma once

#include <string>
#include <vector>

#include "coordinator/cluster/job.h"
#include "coordinator/service/dispatcher.h"

namespace skein::coordinator {

struct MetricsSnapshot {
  struct Model {
    std::string name;
    Dispatcher::Counts requests;
  };
  std::vector<Model> models;
  // In the order of Cluster::Status. Those that are over are passed over.
  std::vector<JobStatus> jobs;
};

}  // namespace skein::coordinator
