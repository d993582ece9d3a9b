#include "proto/convert/attach.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/printable.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "base/tls/job_key.h"
#include "parallel/comm/call.h"
#include "parallel/plan/plan.h"
#include "proto/convert/machines.h"
#include "proto/convert/topology.h"

namespace skein::convert {
namespace {

namespace wire = ::skein::cluster::v1;

// A rank computes with two groups of ranks, and tells of two threads.
constexpr size_t kMaxEntries = 64;
constexpr size_t kMaxToldBytes = size_t{1} << 20;  // of a host with its figures: some 20 KB

absl::Status CheckLength(const char* field, const std::string& text) {
  if (text.size() <= kMaxNameBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": ", text.size(), " bytes; at most ", kMaxNameBytes, " are allowed"));
}

absl::StatusOr<std::string> Name(const char* field, const std::string& text) {
  SKEIN_RETURN_IF_ERROR(CheckLength(field, text));
  return Printable(text, kMaxNameBytes);
}

wire::OperationInProgress ToProto(const comm::OperationInProgress& operation,
                                  absl::Duration deadline) {
  wire::OperationInProgress out;
  out.set_group(operation.group);
  out.set_operation(std::string(comm::OperationName(operation.call.operation)));
  out.set_number(operation.call.number);
  out.set_peer(comm::HasPeer(operation.call.operation) ? operation.call.peer : -1);
  out.mutable_others()->Add(operation.others.begin(), operation.others.end());
  out.set_seconds(absl::ToDoubleSeconds(operation.elapsed));
  out.set_still_seconds(absl::ToDoubleSeconds(operation.still));
  out.set_deadline_seconds(absl::ToDoubleSeconds(deadline));
  return out;
}

// Sums of such times stay finite, whatever a stranger says.
absl::Duration PassedTime(double seconds) {
  constexpr double kCentury = 3.2e9;
  return absl::Seconds(seconds >= 0 ? std::min(seconds, kCentury) : 0);  // NaN is 0
}

std::optional<comm::OperationInProgress> FromProto(const wire::OperationInProgress& operation) {
  const std::optional<comm::Operation> kind = comm::ParseOperation(operation.operation());
  if (!kind.has_value()) return std::nullopt;
  const int others = std::min(operation.others_size(), attach::kMaxJobSize);
  return comm::OperationInProgress{
      .group = Printable(operation.group(), kMaxNameBytes),
      .call = {.operation = *kind, .peer = operation.peer(), .number = operation.number()},
      .others = {operation.others().begin(), operation.others().begin() + others},
      .elapsed = absl::Seconds(operation.seconds()),
      .still = absl::Seconds(operation.still_seconds())};
}

absl::Status CheckJobId(const std::string& id) {
  SKEIN_RETURN_IF_ERROR(CheckLength("job_id", id));
  if (id.empty()) return absl::InvalidArgumentError("job_id: empty");
  // Jobs are told apart by their ids, which therefore stay as they are.
  if (Printable(id) != id) {
    return absl::InvalidArgumentError(
        absl::StrCat("job_id: '", Printable(id), "' has characters that cannot be printed"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckJob(const std::string& id, const std::string& key) {
  SKEIN_RETURN_IF_ERROR(CheckJobId(id));
  if (key.size() == kJobKeyBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("job_key: ", key.size(), " bytes; a key has ", kJobKeyBytes));
}

wire::ProtocolRange ToProto(const attach::ProtocolRange& protocols) {
  wire::ProtocolRange out;
  out.set_min(protocols.min);
  out.set_max(protocols.max);
  return out;
}

attach::ProtocolRange FromProto(const wire::ProtocolRange& protocols) {
  return {.min = protocols.min(), .max = protocols.max()};
}

wire::Hello ToProto(const attach::Hello& hello) {
  wire::Hello out;
  out.set_version(hello.version);
  out.set_job_id(hello.job_id);
  out.set_job_key(hello.job_key);
  *out.mutable_protocols() = ToProto(hello.protocols);
  out.set_rank(hello.rank);
  out.set_job_size(hello.job_size);
  out.set_pid(hello.pid);
  *out.mutable_node() = ToProto(hello.node);
  *out.mutable_device() = ToProto(hello.device);
  out.set_layout(hello.layout.ToString());
  out.set_model(hello.model);
  if (hello.told) *out.mutable_told() = ToProto(*hello.told);
  return out;
}

absl::StatusOr<attach::Hello> FromProto(const wire::Hello& hello) {
  attach::Hello out = {.protocols = FromProto(hello.protocols()),
                       .job_id = hello.job_id(),
                       .job_key = hello.job_key(),
                       .rank = hello.rank(),
                       .job_size = hello.job_size(),
                       .pid = hello.pid()};
  SKEIN_ASSIGN_OR_RETURN(out.version, Name("version", hello.version()));
  SKEIN_RETURN_IF_ERROR(CheckJobId(out.job_id));
  // Who tells of no protocol is from before there were keys: that it is told.
  if (hello.has_protocols()) SKEIN_RETURN_IF_ERROR(CheckJob(out.job_id, out.job_key));
  SKEIN_ASSIGN_OR_RETURN(const std::string layout, Name("layout", hello.layout()));
  SKEIN_ASSIGN_OR_RETURN(out.layout, plan::ParseLayoutRequest(layout));
  SKEIN_ASSIGN_OR_RETURN(out.model, Name("model", hello.model()));
  SKEIN_ASSIGN_OR_RETURN(const std::string host, Name("node: host", hello.node().host()));
  SKEIN_ASSIGN_OR_RETURN(out.node, FromProto(hello.node()));
  out.node.host = host;
  SKEIN_ASSIGN_OR_RETURN(const std::string device, Name("device: name", hello.device().name()));
  SKEIN_ASSIGN_OR_RETURN(out.device, FromProto(hello.device()));
  out.device.name = device;
  if (!hello.has_told()) return out;
  // Before it is read, which a stranger's words may make long.
  if (hello.told().hosts_size() != 1 || hello.told().hosts(0).count() != 0) {
    return absl::InvalidArgumentError("told: a rank tells of its own host alone");
  }
  if (const size_t bytes = hello.told().ByteSizeLong(); bytes > kMaxToldBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("told: ", bytes, " bytes; at most ", kMaxToldBytes, " are allowed"));
  }
  absl::StatusOr<topology::Topology> told = FromProto(hello.told());
  if (!told.ok()) return Annotate(told.status(), "told");
  out.told = *std::move(told);
  return out;
}

wire::Welcome ToProto(const attach::Welcome& welcome) {
  wire::Welcome out;
  out.set_version(welcome.version);
  *out.mutable_protocols() = ToProto(welcome.protocols);
  out.set_protocol(welcome.protocol);
  out.set_nonce(welcome.nonce);
  return out;
}

attach::Welcome FromProto(const wire::Welcome& welcome) {
  return {.version = Printable(welcome.version(), kMaxNameBytes),
          .protocols = FromProto(welcome.protocols()),
          .protocol = welcome.protocol(),
          .nonce = welcome.nonce()};
}

wire::Ready ToProto(const attach::Ready& ready) {
  wire::Ready out;
  out.set_slice_key(ready.slice_key);
  out.set_slice_digest(ready.slice_digest);
  out.set_bytes_read(ready.bytes_read);
  out.set_load_seconds(absl::ToDoubleSeconds(ready.load_time));
  out.set_model_path(ready.model_path);
  return out;
}

attach::Ready FromProto(const wire::Ready& ready) {
  return {.slice_key = Printable(ready.slice_key(), kMaxNameBytes),
          .slice_digest = Printable(ready.slice_digest(), kMaxNameBytes),
          .model_path = Printable(ready.model_path()),
          .bytes_read = ready.bytes_read(),
          .load_time = absl::Seconds(ready.load_seconds())};
}

wire::Heartbeat ToProto(const attach::Heartbeat& heartbeat) {
  wire::Heartbeat out;
  const comm::Progress& progress = heartbeat.progress;
  if (progress.operation.has_value()) {
    *out.mutable_operation() = ToProto(*progress.operation, progress.deadline);
  }
  if (progress.step.has_value()) out.set_step(*progress.step);
  out.mutable_entered()->insert(progress.entered.begin(), progress.entered.end());
  out.set_messages_taken(heartbeat.messages_taken);
  for (const auto& [thread, still] : heartbeat.threads) {
    (*out.mutable_threads())[thread] = absl::ToDoubleSeconds(still);
  }
  if (heartbeat.experts) *out.mutable_experts() = ToProto(*heartbeat.experts);
  if (heartbeat.times) *out.mutable_times() = ToProto(*heartbeat.times);
  return out;
}

wire::RankTimes ToProto(const comm::RankTimes& times) {
  wire::RankTimes out;
  out.set_compute_seconds(absl::ToDoubleSeconds(times.compute));
  out.set_transfer_seconds(absl::ToDoubleSeconds(times.transfer));
  out.set_bubble_seconds(absl::ToDoubleSeconds(times.bubble));
  out.set_waiting_seconds(absl::ToDoubleSeconds(times.waiting));
  return out;
}

wire::ExpertLoad ToProto(const ExpertLoad& load) {
  wire::ExpertLoad out;
  out.set_rows(load.rows);
  out.set_layer(load.layer);
  out.set_expert(load.expert);
  out.set_of_average(load.of_average);
  return out;
}

attach::Heartbeat FromProto(const wire::Heartbeat& heartbeat) {
  attach::Heartbeat out;
  comm::Progress& progress = out.progress;
  if (heartbeat.has_operation()) {
    progress.operation = FromProto(heartbeat.operation());
    progress.deadline = absl::Seconds(heartbeat.operation().deadline_seconds());
  }
  if (heartbeat.has_step()) progress.step = heartbeat.step();
  for (const auto& [group, number] : heartbeat.entered()) {
    if (progress.entered.size() == kMaxEntries) break;
    progress.entered.emplace(Printable(group, kMaxNameBytes), number);
  }
  for (const auto& [thread, seconds] : heartbeat.threads()) {
    if (out.threads.size() == kMaxEntries) break;
    out.threads.emplace(Printable(thread, kMaxNameBytes), absl::Seconds(seconds));
  }
  out.messages_taken = heartbeat.messages_taken();
  if (heartbeat.has_experts()) {
    const wire::ExpertLoad& load = heartbeat.experts();
    out.experts = {load.rows(), load.layer(), load.expert(), load.of_average()};
  }
  if (heartbeat.has_times()) {
    const wire::RankTimes& times = heartbeat.times();
    out.times = {PassedTime(times.compute_seconds()), PassedTime(times.transfer_seconds()),
                 PassedTime(times.bubble_seconds()), PassedTime(times.waiting_seconds())};
  }
  return out;
}

wire::Failure ToProto(const absl::Status& failure) {
  wire::Failure out;
  out.set_code(static_cast<int32_t>(failure.code()));
  out.set_message(std::string(failure.message()));
  return out;
}

absl::Status FromProto(const wire::Failure& failure) {
  const auto code = static_cast<absl::StatusCode>(failure.code());
  return absl::Status(code == absl::StatusCode::kOk ? absl::StatusCode::kUnknown : code,
                      Printable(failure.message()));
}

}  // namespace skein::convert
