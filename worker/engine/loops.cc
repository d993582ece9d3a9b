#include "worker/engine/loops.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "worker/engine/step_order.h"

namespace skein::worker {
namespace {

// The sampling rank's result of `step`, or the failure of the rank that says so first.
absl::StatusOr<StepResult> ReceiveResult(comm::ControlChannel& channel, int64_t step,
                                         absl::Time deadline) {
  SKEIN_ASSIGN_OR_RETURN(const comm::ControlMessage message, channel.Receive(deadline));
  SKEIN_ASSIGN_OR_RETURN(StepResult result, DecodeStepResult(message.bytes));
  SKEIN_RETURN_IF_ERROR(
      Annotate(result.status, absl::StrCat("rank ", message.from, " of the replica, step ", step)));
  if (result.step != step) {
    return absl::InternalError(absl::StrCat("rank ", message.from, " answered step ", result.step,
                                            " while step ", step, " was running"));
  }
  return result;
}

absl::Status RunStep(const LeaderOptions& options, Stage& stage, comm::ControlChannel* channel,
                     ReplicaState& state) {
  const StepOrder order = state.NextOrder();
  const absl::Time deadline = absl::Now() + options.step_timeout;
  if (channel != nullptr) {
    SKEIN_RETURN_IF_ERROR(channel->Broadcast(Encode(order), deadline));
  }
  std::vector<SampledRow> sampled;
  SKEIN_RETURN_IF_ERROR(stage.Run(order, &sampled));
  if (!stage.samples()) {
    SKEIN_ASSIGN_OR_RETURN(StepResult result, ReceiveResult(*channel, order.step, deadline));
    sampled = std::move(result.sampled);
  }
  return state.Apply(sampled);
}

}  // namespace

absl::Status RunLeader(const LeaderOptions& options, Stage& stage, comm::ControlChannel* channel,
                       Inbox& inbox) {
  ReplicaState state(options.limits);
  while (true) {
    Inbox::Contents contents = inbox.Take(/*wait=*/state.idle() && !state.has_outputs());
    if (contents.stop) break;
    if (contents.cancel_all) state.CancelAll();
    for (GenerationRequest& request : contents.requests) state.Add(std::move(request));
    for (RequestId id : contents.cancelled) state.Cancel(id);
    // Not before cancel_all was seen: a new coordinator is told nothing of the old one's requests.
    if (state.has_outputs()) options.report(state.TakeReport());
    if (!state.idle()) SKEIN_RETURN_IF_ERROR(RunStep(options, stage, channel, state));
  }
  if (channel == nullptr) return absl::OkStatus();
  return channel->Broadcast(Encode(StepOrder{.stop = true}), absl::Now() + options.step_timeout);
}

absl::Status RunFollower(Stage& stage, comm::ControlChannel& channel, absl::Duration step_timeout) {
  while (true) {
    SKEIN_ASSIGN_OR_RETURN(const comm::ControlMessage message,
                           channel.Receive(absl::InfiniteFuture()));
    SKEIN_ASSIGN_OR_RETURN(const StepOrder order, DecodeStepOrder(message.bytes));
    if (order.stop) return absl::OkStatus();
    StepResult result{.step = order.step};
    result.status = stage.Run(order, &result.sampled);
    absl::Status sent;
    if (!result.status.ok() || stage.samples()) {
      sent = channel.SendToLeader(Encode(result), absl::Now() + step_timeout);
    }
    SKEIN_RETURN_IF_ERROR(result.status);  // the cause comes first
    SKEIN_RETURN_IF_ERROR(sent);
  }
}

}  // namespace skein::worker
