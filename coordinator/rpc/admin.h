// What changes a running coordinator, as its admin service asks for it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/cluster/cluster.h"

namespace skein::coordinator {

// Thread-safe. No timeout: the coordinator's own.
class Admin {
 public:
  virtual ~Admin() = default;

  // Reads the model, which blocks, and serves it. `argument`: see ParseModelArgument. Its name
  // comes back. On an error nothing has changed.
  virtual absl::StatusOr<std::string> AddModel(const std::string& argument) = 0;

  struct RemovedModel {
    std::string name;      // its first one
    int64_t requests = 0;  // that it still has
    int64_t jobs = 0;
  };
  // Begins to remove a model, by one of its names; again: only the timeout is new. NotFound: there
  // is none.
  virtual absl::StatusOr<RemovedModel> RemoveModel(const std::string& name,
                                                   std::optional<absl::Duration> timeout) = 0;

  // See Cluster::DrainJob.
  virtual absl::StatusOr<Cluster::Draining> DrainJob(const std::string& job_id,
                                                     std::optional<absl::Duration> timeout) = 0;
};

}  // namespace skein::coordinator
