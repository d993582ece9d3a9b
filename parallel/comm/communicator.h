// Collectives and point-to-point messages among the ranks of one group.
//
// Calls run on `stream`: on the CPU at once, and they block. Views of other streams lie on a
// device, and need UseDevice, whose calls do not block, or StageThrough, by way of the host's
// memory. All ranks of the group make the same collective calls in the same order. Every call has a
// number, equal on all ranks for collectives, so that a hang can be named: "rank 5 never entered
// all-reduce 812".
//
// A call that fails (deadline, lost peer, abort, arguments that do not fit, ranks that disagree)
// poisons the communicator: every later call returns the first error at once. The rank reports it
// and ends; a job does not outlive it.
//
// The public calls check, number, publish and poison, once for all transports; a transport
// implements the private ones.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/device_copies.h"
#include "base/device_events.h"
#include "base/mutex.h"
#include "base/stream.h"
#include "base/view.h"
#include "parallel/comm/call.h"
#include "parallel/comm/device_calls.h"
#include "parallel/comm/device_transport.h"
#include "parallel/comm/operation_tracker.h"
#include "parallel/comm/patience.h"

namespace skein::comm {

// Not thread-safe: one thread at a time, except Abort and failure.
class Communicator {
 public:
  // Called on the way into every call, on its thread. A flush is shown as the last send to that
  // rank, with -1 bytes.
  using Hook = std::function<void(const Call& call)>;

  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const {
    return name_;
  }  // of the group, for messages: "tp of replica 0"

  // `data` becomes the sum over all ranks, in place, element by element. Unimplemented for a dtype
  // that the transport cannot add.
  absl::Status AllReduce(View data, Stream stream);
  // `out`, size() times as large as `in`, becomes the ranks' inputs in rank order. Every rank gives
  // the same size.
  absl::Status AllGather(ConstView in, View out, Stream stream);
  absl::Status Broadcast(View data, int root, Stream stream);
  absl::Status Barrier(Stream stream);
  // On the CPU, Send copies `data` and returns, unless more than 16 MiB to `to` are still on their
  // way: then it waits for the receiver. Messages between two ranks arrive in order; a receiver's
  // size must be the sender's.
  absl::Status Send(ConstView data, int to, Stream stream);
  absl::Status Receive(View data, int from, Stream stream);
  // Some transports deliver a large message only with the sender's help. Both do nothing where
  // messages need none.
  //
  // Helps sent messages on, without waiting. A rank that computes calls it now and then, so that
  // its receivers need not wait until it is done.
  absl::Status Progress();
  // Returns when messages sent to `to` need no more help of this rank. For a rank that is about to
  // sleep.
  absl::Status Flush(int to);

  // `told` hears the first failure of a call, on its thread, before other ranks can notice that
  // this one has left. Must precede the first call.
  void set_on_failure(std::function<void(const absl::Status&)> told) { told_ = std::move(told); }
  // Makes the call in flight and all later ones fail with `why`. Any thread may call it.
  void Abort(const absl::Status& why);
  // The first failure; OK while there is none. Any thread may call it.
  absl::Status failure() const;

  // How long a call that begins from now on may take; InfiniteDuration by default. Any thread may
  // call it.
  void set_timeout(absl::Duration timeout) { timeout_ns_ = absl::ToInt64Nanoseconds(timeout); }
  // How long a call on the host's memory that begins from now on waits by polling, before it sleeps
  // between polls: for a rank whose device stands still until it is woken.
  void set_spin(absl::Duration spin) { patience_.spin = spin; }
  absl::Duration spin() const { return patience_.spin; }
  // Heartbeats say of calls from now on that they belong to this step. Without it they belong to
  // the step that the host has in hand, which a device may be behind. `order` is a digest of what
  // the step computes, as all ranks have to have it.
  void set_step(int64_t step, uint32_t order = 0) {
    step_ = step;
    order_ = order;
    step_begins_ = true;
    if (line_ != nullptr) line_->set_step(step);
  }
  // From now on every call is published in `line` while it lasts, beats the pulse of `line` while
  // it waits, and tells the clock of `line` how long. Must precede the first call; `line` outlives
  // the communicator.
  void Track(OperationTracker::Group* line);
  // From now on views of other streams than kHostStream go by way of the host's memory, where sums
  // are made of floats; AllGather is Unimplemented for them. `copies` outlives the communicator.
  // While a call waits for its own device the others have yet to see it enter; it hears Abort, its
  // time runs, and `check`, where it is given, tells on the call's thread what is wrong with what
  // that device waits for.
  void StageThrough(DeviceCopies* copies, std::function<absl::Status()> check = nullptr) {
    copies_ = copies;
    check_device_ = std::move(check);
  }

  // From now on `transport` makes the calls for views of other streams than kHostStream, numbered
  // and tracked with the others; AllGather, Broadcast and Barrier are Unimplemented for them. Such
  // a call returns once its stream has it. `events` are of the device that the streams belong to.
  void UseDevice(std::unique_ptr<DeviceTransport> transport, std::shared_ptr<DeviceEvents> events);
  bool uses_device() const { return device_ != nullptr; }
  // Fails, and poisons, when something is wrong with calls that streams have: an error, a lost
  // peer, a call that is not over within its time-out. Who waits for a stream calls it again and
  // again, and once more when the wait is over: after a failure the data are void. Does not wait.
  absl::Status Check();
  // Gives a stream that is being captured a sum, which has no number: the replay has.
  absl::Status CaptureAllReduce(View data, Stream stream);
  // Not null: sums of such views go over memory that kernels reach, and AllReduceBy may make them.
  const PeerMemory* PeersOf(const View& data) const {
    return device_ == nullptr ? nullptr : device_->PeersOf(data);
  }
  // As AllReduce, by a kernel of the caller's, which `give` gives the stream. In a stream that is
  // being captured it takes the place of CaptureAllReduce without a call.
  absl::Status AllReduceBy(View data, Stream stream, absl::FunctionRef<absl::Status()> give);
  // Calls `launch`, which gives `stream` a graph that has captured so many sums, or a kernel that
  // makes them.
  absl::Status Replay(int64_t sums, Stream stream, absl::FunctionRef<absl::Status()> launch);

  // For tests that record or hold up calls: `before` runs before a call is published, `inside`
  // afterwards.
  void set_hooks(Hook before, Hook inside);
  // Collective calls entered so far.
  int64_t calls() const { return calls_; }

  // True if sums join ranks as a binary tree, ((0+1)+(2+3))+((4+5)+(6+7)), whatever the size of the
  // message, so that layouts agree in every bit. A size that is no power of two splits the ranks at
  // the largest power of two below it, recursively.
  bool SumsAsTree(Stream stream) const {
    return IsOnDevice(stream) ? device_->SumsAsTree() : DoSumsAsTree();
  }

 protected:
  Communicator(std::string name, int rank, int size);

  const Patience& patience() const { return patience_; }

 private:
  virtual bool DoSumsAsTree() const = 0;
  // Arguments have been checked; `call` is what every rank must have entered. An error poisons.
  virtual absl::Status DoAllReduce(const Call& call, View data, Stream stream) = 0;
  virtual absl::Status DoAllGather(const Call& call, ConstView in, View out, Stream stream) = 0;
  virtual absl::Status DoBroadcast(const Call& call, View data, Stream stream) = 0;
  virtual absl::Status DoBarrier(const Call& call, Stream stream) = 0;
  virtual absl::Status DoSend(const Call& call, ConstView data, Stream stream) = 0;
  virtual absl::Status DoReceive(const Call& call, View data, Stream stream) = 0;
  virtual absl::Status DoProgress() { return absl::OkStatus(); }
  virtual absl::Status DoFlush(int /*to*/) { return absl::OkStatus(); }
  // Ends the wait in flight; failure() is set. Any thread, maybe several times.
  virtual void DoAbort() {}
  // Called on the thread of a call that has failed; no other call will come.
  virtual void DoFail() {}

  // Calls `body` with a view of the host's memory that has the device's data where `in`, and whose
  // data the device has afterwards where `out`.
  absl::Status Stage(View data, bool in, bool out, Stream stream,
                     absl::FunctionRef<absl::Status(View)> body);
  absl::Status SumOnHost(View data, Stream stream);
  // Fails where the wait for the own device must end: after Abort, or at the deadline.
  absl::Status KeepWaiting(SteadyTime deadline) const;
  // Of a call that begins now, by set_timeout.
  absl::Duration Timeout() const;
  static SteadyTime DeadlineAfter(absl::Duration timeout);
  bool IsStaged(Stream stream) const { return stream.handle != nullptr && copies_ != nullptr; }
  bool IsOnDevice(Stream stream) const { return stream.handle != nullptr && device_ != nullptr; }
  // Unimplemented for a device's memory, of which nobody makes such a call.
  absl::Status CheckOnHost(Operation operation, Stream stream) const;
  // `last` is the number of the last one, where `give` gives the stream several.
  absl::Status GiveToDevice(const Call& call, int64_t last, Stream stream,
                            absl::FunctionRef<absl::Status()> give);

  using Body = absl::FunctionRef<absl::Status(const Call&)>;
  absl::Status RunCollective(Operation operation, int64_t bytes, int root, absl::Status fits,
                             Body body);
  absl::Status RunMessage(Operation operation, int64_t bytes, int peer, const char* what,
                          std::vector<int64_t>& numbers, Body body);
  absl::Status Run(const Call& call, bool published, absl::FunctionRef<absl::Status()> body);
  absl::Status Fail(const absl::Status& why);

  const std::string name_;
  const int rank_;
  const int size_;
  static constexpr int64_t kNoTimeout = std::numeric_limits<int64_t>::max();
  std::atomic<int64_t> timeout_ns_ = kNoTimeout;
  Patience patience_;
  int64_t calls_ = 0;
  std::vector<int64_t> sent_;      // messages, by receiver
  std::vector<int64_t> received_;  // by sender
  OperationTracker::Group* line_ = nullptr;
  DeviceCopies* copies_ = nullptr;
  std::function<absl::Status()> check_device_;
  std::shared_ptr<DeviceCalls> device_calls_;  // the tracker reads it, too
  std::unique_ptr<DeviceTransport> device_;
  std::optional<int64_t> step_;
  uint32_t order_ = 0;
  bool step_begins_ = false;   // the device has not heard of it
  std::vector<float> floats_;  // that are added on the host
  Hook before_;
  Hook inside_;
  std::function<void(const absl::Status&)> told_;

  mutable Mutex mutex_;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace skein::comm
