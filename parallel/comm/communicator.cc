#include "parallel/comm/communicator.h"

#include <cstddef>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "base/status_macros.h"

namespace skein::comm {

Communicator::Communicator(std::string name, int rank, int size)
    : name_(std::move(name)), rank_(rank), size_(size), sent_(size), received_(size) {}

absl::Status Communicator::Stage(View data, bool in, bool out, Stream stream,
                                 absl::FunctionRef<absl::Status(View)> body) {
  const auto staged = [&]() -> absl::Status {
    SKEIN_ASSIGN_OR_RETURN(const absl::Span<std::byte> buffer, copies_->Buffer(data.bytes()));
    if (in) SKEIN_RETURN_IF_ERROR(copies_->ToHost(data, buffer.data(), stream));
    SKEIN_RETURN_IF_ERROR(body({buffer.data(), data.dtype, data.rows, data.cols}));
    return out ? copies_->ToDevice(buffer.data(), data, stream) : absl::OkStatus();
  };
  const absl::Status status = staged();
  return status.ok() ? status : Fail(status);
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

absl::Status Communicator::AllReduce(View data, Stream stream) {
  if (IsStaged(stream)) return SumOnHost(data, stream);
  return RunCollective(Operation::kAllReduce, data.bytes(), 0, absl::OkStatus(),
                       [&](const Call& call) { return DoAllReduce(call, data, stream); });
}

absl::Status Communicator::AllGather(ConstView in, View out, Stream stream) {
  if (IsStaged(stream)) {
    return Fail(absl::UnimplementedError("an all-gather of a device's memory"));
  }
  return RunCollective(Operation::kAllGather, in.bytes(), 0,
                       CheckAllGather(in.bytes(), out.bytes(), size_, name_),
                       [&](const Call& call) { return DoAllGather(call, in, out, stream); });
}

absl::Status Communicator::Broadcast(View data, int root, Stream stream) {
  if (IsStaged(stream)) {
    return Stage(data, rank_ == root, rank_ != root, stream,
                 [&](View host) { return Broadcast(host, root, kHostStream); });
  }
  return RunCollective(Operation::kBroadcast, data.bytes(), root,
                       CheckRank(root, size_, -1, "root of a broadcast", name_),
                       [&](const Call& call) { return DoBroadcast(call, data, stream); });
}

absl::Status Communicator::Barrier(Stream stream) {
  return RunCollective(Operation::kBarrier, 0, 0, absl::OkStatus(),
                       [&](const Call& call) { return DoBarrier(call, stream); });
}

absl::Status Communicator::Send(ConstView data, int to, Stream stream) {
  if (IsStaged(stream)) {
    // Nothing is written to it.
    const View view = {const_cast<void*>(data.data), data.dtype, data.rows, data.cols};
    return Stage(view, /*in=*/true, /*out=*/false, stream,
                 [&](View host) { return Send(host, to, kHostStream); });
  }
  return RunMessage(Operation::kSend, data.bytes(), to, "receiver", sent_,
                    [&](const Call& call) { return DoSend(call, data, stream); });
}

absl::Status Communicator::Receive(View data, int from, Stream stream) {
  if (IsStaged(stream)) {
    return Stage(data, /*in=*/false, /*out=*/true, stream,
                 [&](View host) { return Receive(host, from, kHostStream); });
  }
  return RunMessage(Operation::kReceive, data.bytes(), from, "sender", received_,
                    [&](const Call& call) { return DoReceive(call, data, stream); });
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
  const int64_t timeout_ns = timeout_ns_;
  patience_.timeout =
      timeout_ns == kNoTimeout ? absl::InfiniteDuration() : absl::Nanoseconds(timeout_ns);
  patience_.deadline =
      patience_.timeout == absl::InfiniteDuration()
          ? SteadyTime::max()
          : std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(patience_.timeout);
  const absl::Status status = body();
  return status.ok() ? status : Fail(status);
}

absl::Status Communicator::Fail(const absl::Status& why) {
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
  DoAbort();
}

absl::Status Communicator::failure() const {
  MutexLock lock(&mutex_);
  return failure_;
}

void Communicator::Track(OperationTracker::Group* line) {
  line_ = line;
  patience_.pulse = &line->pulse();
}

void Communicator::set_hooks(Hook before, Hook inside) {
  before_ = std::move(before);
  inside_ = std::move(inside);
}

}  // namespace skein::comm
