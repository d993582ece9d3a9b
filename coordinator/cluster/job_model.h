// A model as its jobs have it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "coordinator/cluster/links.h"
#include "parallel/planner/planner.h"

namespace skein::coordinator {

struct JobModel {
  plan::ModelFacts facts;            // its name names it
  std::vector<std::string> aliases;  // other names
  plan::Constraints constraints;     // of every job
  std::shared_ptr<ReplicaListener> listener;
};

}  // namespace skein::coordinator
