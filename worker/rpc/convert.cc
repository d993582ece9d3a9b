#include "worker/rpc/convert.h"

#include <string>

#include "absl/time/time.h"

namespace skein::worker {

namespace pb = ::skein::cluster::v1;

pb::Heartbeat ToProto(const comm::Progress& progress) {
  pb::Heartbeat out;
  if (progress.step.has_value()) out.set_step(*progress.step);
  for (const auto& [group, number] : progress.entered) (*out.mutable_entered())[group] = number;
  if (!progress.operation.has_value()) return out;
  const comm::OperationInProgress& operation = *progress.operation;
  pb::OperationInProgress& to = *out.mutable_operation();
  to.set_group(operation.group);
  to.set_operation(std::string(comm::OperationName(operation.call.operation)));
  to.set_number(operation.call.number);
  to.set_peer(comm::HasPeer(operation.call.operation) ? operation.call.peer : -1);
  to.mutable_others()->Add(operation.others.begin(), operation.others.end());
  to.set_seconds(absl::ToDoubleSeconds(operation.elapsed));
  to.set_still_seconds(absl::ToDoubleSeconds(operation.still));
  to.set_deadline_seconds(absl::ToDoubleSeconds(progress.deadline));
  return out;
}

}  // namespace skein::worker
