// Asks a coordinator about jobs over gRPC (Cluster.GetJob).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/tls/mutual_tls.h"
#include "supervisor/job_info.h"

namespace skein::supervisor {

// Any thread may call it. Whoever listens at the address may change from call to call.
class JobClient final : public JobInfoSource {
 public:
  // HOST:PORT; without `tls` it is plain.
  JobClient(const std::string& coordinator, const std::optional<MutualTls>& tls);
  ~JobClient() override;  // cancels open queries, and returns when every `done` was called

  void Query(const JobKey& key, absl::Duration timeout, std::function<void(JobInfo)> done) override;

 private:
  struct Call;
  struct Calls;

  const std::unique_ptr<Calls> calls_;
};

}  // namespace skein::supervisor
