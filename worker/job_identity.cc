#include "worker/job_identity.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/random_bytes.h"
#include "base/status_macros.h"
#include "parallel/comm/gather_strings.h"

namespace skein::worker {
namespace {

constexpr size_t kMaxBytes = 256;  // as the coordinator has it
constexpr size_t kLeastSecretBytes = 16;
constexpr size_t kRandomIdBytes = 8;
constexpr size_t kRandomSecretBytes = 32;

absl::StatusOr<JobIdentity> RandomIdentity() {
  JobIdentity job;
  SKEIN_ASSIGN_OR_RETURN(job.id, RandomHex(kRandomIdBytes));
  SKEIN_ASSIGN_OR_RETURN(job.secret, RandomHex(kRandomSecretBytes));
  return job;
}

// Of one size on all ranks. Without an id: rank 0 could make none.
struct Parcel {
  uint32_t id_bytes = 0;
  uint32_t secret_bytes = 0;
  std::array<char, kMaxBytes> id{};
  std::array<char, kMaxBytes> secret{};
};

}  // namespace

absl::StatusOr<std::optional<JobIdentity>> ParseJobIdentity(const char* id, const char* secret) {
  if (id == nullptr && secret == nullptr) return std::optional<JobIdentity>();
  if (id == nullptr || secret == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(id == nullptr ? "SKEIN_JOB_SECRET" : "SKEIN_JOB_ID", " is set without ",
                     id == nullptr ? "SKEIN_JOB_ID" : "SKEIN_JOB_SECRET",
                     "; set both, or neither for random ones"));
  }
  const size_t id_bytes = strlen(id);
  if (id_bytes == 0 || id_bytes > kMaxBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("SKEIN_JOB_ID has ", id_bytes, " bytes; 1 to ", kMaxBytes, " are allowed"));
  }
  const size_t secret_bytes = strlen(secret);
  if (secret_bytes < kLeastSecretBytes || secret_bytes > kMaxBytes) {
    return absl::InvalidArgumentError(absl::StrCat("SKEIN_JOB_SECRET has ", secret_bytes,
                                                   " bytes; ", kLeastSecretBytes, " to ", kMaxBytes,
                                                   " are allowed"));
  }
  return JobIdentity{.id = id, .secret = secret};
}

absl::StatusOr<JobIdentity> AgreeOnJob(comm::Communicator& world,
                                       const std::optional<JobIdentity>& given) {
  Parcel parcel;
  absl::Status failed;
  if (world.rank() == 0) {
    const absl::StatusOr<JobIdentity> job =
        given.has_value() ? absl::StatusOr<JobIdentity>(*given) : RandomIdentity();
    failed = job.status();
    if (job.ok()) {
      parcel.id_bytes = job->id.copy(parcel.id.data(), kMaxBytes);
      parcel.secret_bytes = job->secret.copy(parcel.secret.data(), kMaxBytes);
    }
  }
  const absl::Span<std::byte> bytes(reinterpret_cast<std::byte*>(&parcel), sizeof(parcel));
  SKEIN_RETURN_IF_ERROR(world.Broadcast(HostView(bytes), 0, kHostStream));
  SKEIN_RETURN_IF_ERROR(failed);
  if (parcel.id_bytes == 0) return absl::InternalError("rank 0 could not make a job id");
  return JobIdentity{.id = {parcel.id.data(), parcel.id_bytes},
                     .secret = {parcel.secret.data(), parcel.secret_bytes}};
}

absl::Status CheckSameProgram(comm::Communicator& world, std::string_view version,
                              const std::string& flags) {
  const std::string own = absl::StrCat("Skein ", std::string(version), " with ", flags);
  SKEIN_ASSIGN_OR_RETURN(const std::vector<std::string> all, comm::GatherStrings(world, own));
  const auto other = std::find_if(all.begin(), all.end(),
                                  [&](const std::string& theirs) { return theirs != all[0]; });
  if (other == all.end()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("rank 0 has ", all[0], " and rank ",
                                                    other - all.begin(), " has ", *other,
                                                    ": start all ranks of a job with the same"));
}

}  // namespace skein::worker
