#include "coordinator/rpc/cluster_convert.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/printable.h"
#include "base/status_macros.h"
#include "coordinator/rpc/sha256.h"
#include "parallel/plan/plan.h"
#include "proto/convert/plan.h"
#include "proto/convert/serving.h"
#include "proto/convert/topology.h"

namespace skein::coordinator {
namespace {

namespace wire = ::skein::cluster::v1;

// A rank computes with two groups of ranks, and tells of two threads.
constexpr size_t kMaxGroups = 64;
constexpr size_t kLeastSecretBytes = 16;  // fewer could be guessed

// What a stranger calls itself is bounded before it is kept or logged.
absl::Status CheckLength(const char* field, const std::string& text) {
  if (text.size() <= kMaxNameBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": ", text.size(), " bytes; at most ", kMaxNameBytes, " are allowed"));
}

absl::StatusOr<std::string> Name(const char* field, const std::string& text) {
  SKEIN_RETURN_IF_ERROR(CheckLength(field, text));
  return Printable(text, kMaxNameBytes);
}

// Unchanged, since jobs are told apart by it.
absl::StatusOr<std::string> JobId(const std::string& id) {
  SKEIN_RETURN_IF_ERROR(CheckLength("job_id", id));
  if (id.empty()) return absl::InvalidArgumentError("job_id: empty");
  if (Printable(id) == id) return id;
  return absl::InvalidArgumentError(
      absl::StrCat("job_id: '", Printable(id), "' has characters that cannot be printed"));
}

absl::StatusOr<std::string> SecretDigest(const std::string& secret) {
  if (secret.size() < kLeastSecretBytes || secret.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError(absl::StrCat("job_secret: ", secret.size(), " bytes; ",
                                                   kLeastSecretBytes, " to ", kMaxNameBytes,
                                                   " are allowed"));
  }
  return Sha256(secret);
}

}  // namespace

absl::StatusOr<RankHello> FromProto(const wire::Hello& hello) {
  SKEIN_ASSIGN_OR_RETURN(const std::string version, Name("version", hello.version()));
  SKEIN_ASSIGN_OR_RETURN(const std::string job_id, JobId(hello.job_id()));
  SKEIN_ASSIGN_OR_RETURN(const std::string digest, SecretDigest(hello.job_secret()));
  SKEIN_ASSIGN_OR_RETURN(const std::string layout, Name("layout", hello.layout()));
  SKEIN_ASSIGN_OR_RETURN(const std::string host, Name("node: host", hello.node().host()));
  RankHello out{.version = version,
                .job_id = job_id,
                .rank = hello.rank(),
                .job_size = hello.job_size(),
                .pid = hello.pid(),
                .secret_digest = digest};
  SKEIN_ASSIGN_OR_RETURN(out.layout, plan::ParseLayoutRequest(layout));
  SKEIN_ASSIGN_OR_RETURN(out.node, convert::FromProto(hello.node()));
  out.node.host = host;
  SKEIN_ASSIGN_OR_RETURN(const std::string device, Name("device: name", hello.device().name()));
  SKEIN_ASSIGN_OR_RETURN(out.device, convert::FromProto(hello.device()));
  out.device.name = device;
  return out;
}

absl::StatusOr<JobKey> FromProto(const wire::GetJobRequest& request) {
  JobKey key;
  SKEIN_ASSIGN_OR_RETURN(key.job_id, JobId(request.job_id()));
  SKEIN_ASSIGN_OR_RETURN(key.secret_digest, SecretDigest(request.job_secret()));
  return key;
}

RankReady FromProto(const wire::Ready& ready) {
  return {.slice_key = Printable(ready.slice_key(), kMaxNameBytes),
          .slice_digest = Printable(ready.slice_digest(), kMaxNameBytes),
          .bytes_read = ready.bytes_read(),
          .load_time = absl::Seconds(ready.load_seconds()),
          .model_path = Printable(ready.model_path())};
}

RankActivity FromProto(const wire::Heartbeat& heartbeat) {
  RankActivity out;
  if (heartbeat.has_step()) out.step = heartbeat.step();
  for (const auto& [group, number] : heartbeat.entered()) {
    if (out.entered.size() == kMaxGroups) break;
    out.entered.emplace(Printable(group, kMaxNameBytes), number);
  }
  for (const auto& [thread, seconds] : heartbeat.threads()) {
    if (out.threads.size() == kMaxGroups) break;
    out.threads.emplace(Printable(thread, kMaxNameBytes), absl::Seconds(seconds));
  }
  out.messages_taken = heartbeat.messages_taken();
  if (!heartbeat.has_operation()) return out;
  const wire::OperationInProgress& operation = heartbeat.operation();
  const std::optional<comm::Operation> kind = comm::ParseOperation(operation.operation());
  if (!kind.has_value()) return out;  // no worker says so
  const int others = std::min(operation.others_size(), kMaxJobSize);
  out.operation = {.group = Printable(operation.group(), kMaxNameBytes),
                   .operation = *kind,
                   .number = operation.number(),
                   .peer = operation.peer(),
                   .others = {operation.others().begin(), operation.others().begin() + others},
                   .elapsed = absl::Seconds(operation.seconds()),
                   .deadline = absl::Seconds(operation.deadline_seconds()),
                   .still = absl::Seconds(operation.still_seconds())};
  return out;
}

absl::Status FromProto(const wire::Failure& failure) {
  const auto code = static_cast<absl::StatusCode>(failure.code());
  return absl::Status(code == absl::StatusCode::kOk ? absl::StatusCode::kUnknown : code,
                      Printable(failure.message()));
}

wire::JobStatus ToProto(const JobStatus& status) {
  wire::JobStatus out;
  out.set_job_id(status.id);
  out.set_state(status.state);
  out.set_size(status.size);
  out.set_detail(status.detail);
  if (status.over_for.has_value()) {
    out.set_over_seconds(absl::ToDoubleSeconds(*status.over_for));
  };
  if (status.plan.has_value()) {
    *out.mutable_plan() = convert::ToProto(*status.plan);
    out.set_plan_table(plan::FormatPlan(*status.plan));
  }
  for (const RankStatus& rank : status.ranks) {
    wire::RankStatus& to = *out.add_ranks();
    to.set_rank(rank.rank);
    to.set_host(rank.host);
    to.set_pid(rank.pid);
    to.set_state(rank.state);
    to.set_heartbeat_age_seconds(absl::ToDoubleSeconds(rank.heartbeat_age));
    to.set_bytes_read(rank.bytes_read);
  }
  for (const ReplicaStatus& replica : status.replicas) {
    wire::ReplicaStatus& to = *out.add_replicas();
    to.set_replica(replica.replica);
    *to.mutable_load() = convert::ToProto(replica.load);
    to.set_tokens_per_second(replica.tokens_per_second);
    to.set_tokens_total(replica.tokens_total);
  }
  return out;
}

}  // namespace skein::coordinator
