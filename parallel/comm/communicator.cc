#include "parallel/comm/communicator.h"

#include <chrono>
#include <cstddef>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "base/status_macros.h"

namespace skein::comm {

Communicator::Communicator(std::string name, int rank, int size)
    : name_(std::move(name)), rank_(rank), size_(size), sent_(size), received_(size) {}

absl::Status Communicator::Stage(View data, bool in, bool out, Stream stream,
                                 absl::FunctionRef<absl::Status(View)> body) {
  if (patience_.failed) return failure();
  const auto staged = [&]() -> absl::Status {
    SteadyTime deadline = DeadlineAfter(Timeout());
    const auto keep_waiting = [&] { return KeepWaiting(deadline); };
    SKEIN_ASSIGN_OR_RETURN(const absl::Span<std::byte> buffer, copies_->Buffer(data.bytes()));
    if (in) SKEIN_RETURN_IF_ERROR(copies_->ToHost(data, buffer.data(), stream, keep_waiting));
    SKEIN_RETURN_IF_ERROR(body({buffer.data(), data.dtype, data.rows, data.cols}));
    deadline = DeadlineAfter(Timeout());  // the exchange had its own time
    return out ? copies_->ToDevice(buffer.data(), data, stream, keep_waiting) : absl::OkStatus();
  };
  const absl::Status status = staged();
  return status.ok() ? status : Fail(status);
}

absl::Status Communicator::KeepWaiting(SteadyTime deadline) const {
  if (patience_.failed) return failure();
  if (check_device_) SKEIN_RETURN_IF_ERROR(check_device_());
  if (std::chrono::steady_clock::now() < deadline) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat(
      name_, ": rank ", rank_, " waited for its own device for ", absl::FormatDuration(Timeout())));
}

// Transports add floats: what has fewer bits is rounded once, behind the sum.
absl::Status Communicator::SumOnHost(View data, Stream stream) {
  return Stage(data, /*in=*/true, /*out=*/true, stream, [&](View host) -> absl::Status {
    if (host.dtype == DType::kF32) return AllReduce(host, kHostStream);
    floats_.resize(host.elements());
    ConvertToFloat(host.dtype, host.data, host.elements(), floats_.data());
    SKEIN_RETURN_IF_ERROR(AllReduce(HostView(absl::MakeSpan(floats_)), kHostStream));
    ConvertFromFloat(host.dtype, floats_.data(), host.elements(), host.data);
    return absl::OkStatus();
  });
}

// ---- What a device does by itself ----

void Communicator::UseDevice(std::unique_ptr<DeviceTransport> transport,
                             std::shared_ptr<DeviceEvents> events) {
  device_ = std::move(transport);
  device_calls_ = std::make_shared<DeviceCalls>(std::move(events));
  if (line_ != nullptr) line_->set_device(device_calls_);
}

absl::Status Communicator::CheckOnHost(Operation operation, Stream stream) const {
  if (stream.handle == nullptr || (device_ == nullptr && copies_ == nullptr)) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(absl::StrCat(
      std::string(OperationName(operation)), " of a device's memory: copy it to the host before"));
}

absl::Status Communicator::GiveToDevice(const Call& call, int64_t last, Stream stream,
                                        absl::FunctionRef<absl::Status()> give) {
  const OperationTracker::Group::GivenToDevice given(line_);
  if (step_begins_ && !IsMessage(call.operation)) {
    SKEIN_RETURN_IF_ERROR(device_->BeginStep(*step_, order_, stream));
    step_begins_ = false;
  }
  SKEIN_RETURN_IF_ERROR(give());
  return device_calls_->Add(
      {.call = call, .last = last, .step = step_, .timeout = patience_.timeout}, stream);
}

absl::Status Communicator::Check() {
  if (patience_.failed) return failure();
  if (device_ == nullptr) return absl::OkStatus();
  const auto check = [&]() -> absl::Status {
    SKEIN_RETURN_IF_ERROR(device_->Check());
    SKEIN_ASSIGN_OR_RETURN(const std::optional<DeviceCall> late, device_calls_->Late());
    if (!late.has_value()) return absl::OkStatus();
    const std::string step = late->step ? absl::StrCat(" (step ", *late->step, ")") : "";
    const std::string up_to = late->last == late->call.number
                                  ? ""
                                  : absl::StrCat(", or one behind it up to ", late->last, ",");
    return absl::DeadlineExceededError(
        absl::StrCat(DescribeCall(late->call, name_), step, up_to, " was not over within ",
                     absl::FormatDuration(late->timeout), ": this rank's device waits for ",
                     device_->Others(late->call)));
  };
  const absl::Status status = check();
  return status.ok() ? status : Fail(status);
}

absl::Status Communicator::CaptureAllReduce(View data, Stream stream) {
  const Call call = {.operation = Operation::kAllReduce, .bytes = data.bytes()};
  return Run(call, /*published=*/false,
             [&] { return device_->AllReduce(call, data, stream, patience_); });
}

absl::Status Communicator::AllReduceBy(View data, Stream stream,
                                       absl::FunctionRef<absl::Status()> give) {
  return RunCollective(
      Operation::kAllReduce, data.bytes(), 0, absl::OkStatus(),
      [&](const Call& call) { return GiveToDevice(call, call.number, stream, give); });
}

absl::Status Communicator::Replay(int64_t sums, Stream stream,
                                  absl::FunctionRef<absl::Status()> launch) {
  const Call call = {.operation = Operation::kAllReduce, .number = calls_ + 1};
  calls_ += sums;
  return Run(call, /*published=*/true, [&] { return GiveToDevice(call, calls_, stream, launch); });
}

// ---- Calls ----

absl::Status Communicator::AllReduce(View data, Stream stream) {
  if (IsStaged(stream)) return SumOnHost(data, stream);
  return RunCollective(
      Operation::kAllReduce, data.bytes(), 0, absl::OkStatus(), [&](const Call& call) {
        if (!IsOnDevice(stream)) return DoAllReduce(call, data, stream);
        return GiveToDevice(call, call.number, stream,
                            [&] { return device_->AllReduce(call, data, stream, patience_); });
      });
}

absl::Status Communicator::AllGather(ConstView in, View out, Stream stream) {
  absl::Status fits = CheckOnHost(Operation::kAllGather, stream);
  fits.Update(CheckAllGather(in.bytes(), out.bytes(), size_, name_));
  return RunCollective(Operation::kAllGather, in.bytes(), 0, fits,
                       [&](const Call& call) { return DoAllGather(call, in, out, stream); });
}

absl::Status Communicator::Broadcast(View data, int root, Stream stream) {
  if (IsStaged(stream)) {
    return Stage(data, rank_ == root, rank_ != root, stream,
                 [&](View host) { return Broadcast(host, root, kHostStream); });
  }
  absl::Status fits = CheckOnHost(Operation::kBroadcast, stream);
  fits.Update(CheckRank(root, size_, -1, "root of a broadcast", name_));
  return RunCollective(Operation::kBroadcast, data.bytes(), root, fits,
                       [&](const Call& call) { return DoBroadcast(call, data, stream); });
}

absl::Status Communicator::Barrier(Stream stream) {
  return RunCollective(Operation::kBarrier, 0, 0, CheckOnHost(Operation::kBarrier, stream),
                       [&](const Call& call) { return DoBarrier(call, stream); });
}

absl::Status Communicator::Send(ConstView data, int to, Stream stream) {
  if (IsStaged(stream)) {
    // Nothing is written to it.
    const View view = {const_cast<void*>(data.data), data.dtype, data.rows, data.cols};
    return Stage(view, /*in=*/true, /*out=*/false, stream,
                 [&](View host) { return Send(host, to, kHostStream); });
  }
  return RunMessage(Operation::kSend, data.bytes(), to, "receiver", sent_, [&](const Call& call) {
    if (!IsOnDevice(stream)) return DoSend(call, data, stream);
    return GiveToDevice(call, call.number, stream,
                        [&] { return device_->Send(call, data, stream, patience_); });
  });
}

absl::Status Communicator::Receive(View data, int from, Stream stream) {
  if (IsStaged(stream)) {
    return Stage(data, /*in=*/false, /*out=*/true, stream,
                 [&](View host) { return Receive(host, from, kHostStream); });
  }
  return RunMessage(
      Operation::kReceive, data.bytes(), from, "sender", received_, [&](const Call& call) {
        if (!IsOnDevice(stream)) return DoReceive(call, data, stream);
        return GiveToDevice(call, call.number, stream,
                            [&] { return device_->Receive(call, data, stream, patience_); });
      });
}

absl::Status Communicator::Progress() {
  // Nobody waits in it.
  return Run({}, /*published=*/false, [&] { return DoProgress(); });
}

absl::Status Communicator::Flush(int to) {
  if (absl::Status fits = CheckRank(to, size_, rank_, "receiver", name_); !fits.ok()) {
    return Fail(fits);
  }
  const Call last = {Operation::kSend, to, sent_[to], -1};
  return Run(last, /*published=*/true, [&] { return DoFlush(to); });
}

absl::Status Communicator::RunCollective(Operation operation, int64_t bytes, int root,
                                         absl::Status fits, Body body) {
  if (!fits.ok()) return Fail(fits);
  const Call call = {operation, root, ++calls_, bytes};
  return Run(call, /*published=*/true, [&] { return body(call); });
}

absl::Status Communicator::RunMessage(Operation operation, int64_t bytes, int peer,
                                      const char* what, std::vector<int64_t>& numbers, Body body) {
  const absl::Status fits = CheckRank(peer, size_, rank_, what, name_);
  if (!fits.ok()) return Fail(fits);
  const Call call = {operation, peer, ++numbers[peer], bytes};
  return Run(call, /*published=*/true, [&] { return body(call); });
}

absl::Status Communicator::Run(const Call& call, bool published,
                               absl::FunctionRef<absl::Status()> body) {
  if (patience_.failed) return failure();
  if (published && before_) before_(call);
  std::optional<OperationTracker::Group::Entered> entered;
  if (published && line_ != nullptr) entered.emplace(line_, call);
  if (published && inside_) inside_(call);
  patience_.timeout = Timeout();
  patience_.deadline = DeadlineAfter(patience_.timeout);
  const absl::Status status = body();
  return status.ok() ? status : Fail(status);
}

absl::Duration Communicator::Timeout() const {
  const int64_t timeout_ns = timeout_ns_;
  return timeout_ns == kNoTimeout ? absl::InfiniteDuration() : absl::Nanoseconds(timeout_ns);
}

SteadyTime Communicator::DeadlineAfter(absl::Duration timeout) {
  if (timeout == absl::InfiniteDuration()) return SteadyTime::max();
  return std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(timeout);
}

absl::Status Communicator::Fail(const absl::Status& why) {
  if (told_ && !patience_.failed) told_(why);
  Abort(why);
  DoFail();
  return failure();
}

void Communicator::Abort(const absl::Status& why) {
  {
    MutexLock lock(&mutex_);
    if (failure_.ok()) failure_ = why;
    patience_.failed = true;
  }
  if (device_ != nullptr) device_->Abort();
  DoAbort();
}

absl::Status Communicator::failure() const {
  MutexLock lock(&mutex_);
  return failure_;
}

void Communicator::Track(OperationTracker::Group* line) {
  line_ = line;
  patience_.pulse = &line->pulse();
  patience_.clock = line->clock();
  if (device_calls_ != nullptr) line_->set_device(device_calls_);
}

void Communicator::set_hooks(Hook before, Hook inside) {
  before_ = std::move(before);
  inside_ = std::move(inside);
}

}  // namespace skein::comm
