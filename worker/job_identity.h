// What makes ranks those of one job: an id, which anyone may see, and a secret, which only the
// ranks and whoever started them know; a coordinator knows the key that follows from it
// (base/tls/job_key.h), and takes ranks with another one for another job.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "parallel/comm/communicator.h"

namespace skein::worker {

struct JobIdentity {
  std::string id;
  std::string secret;  // never logged, never on a command line
};

// As a supervisor passes it in the environment (SKEIN_JOB_ID and SKEIN_JOB_SECRET): null where a
// variable is not set. Nothing where neither is; InvalidArgument where one is without the other, or
// has a length that no coordinator takes.
absl::StatusOr<std::optional<JobIdentity>> ParseJobIdentity(const char* id, const char* secret);

// A collective of all ranks: the identity of rank 0 on each of them, `given` or, where that is
// nothing, a random one.
absl::StatusOr<JobIdentity> AgreeOnJob(comm::Communicator& world,
                                       const std::optional<JobIdentity>& given);

// A call of all ranks, of what ranks have alike: the program's version, since they send each other
// bytes as they lie in memory, and some flags. It comes before such bytes. FailedPrecondition, on
// all of them, names a rank that differs from rank 0, and what both have.
absl::Status CheckSameProgram(comm::Communicator& world, std::string_view version,
                              const std::string& flags);

}  // namespace skein::worker
