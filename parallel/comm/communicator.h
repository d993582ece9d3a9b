// Collectives and point-to-point messages among the ranks of one group.
//
// Calls run on `stream` (on the CPU: at once, and block). All ranks of the group make the same
// collective calls in the same order. Every call has a number, equal on all ranks for collectives,
// so that a hang can be named: "rank 5 never entered all-reduce 812".
//
// A call that fails (deadline, lost peer, abort, arguments that do not fit, ranks that disagree)
// poisons the communicator: every later call returns the first error at once. The rank reports it
// and ends; a job does not outlive it.
//
// Sums join ranks as a binary tree, ((0+1)+(2+3))+((4+5)+(6+7)), whatever the size of the message,
// so that layouts agree in every bit. A size that is no power of two splits the ranks at the
// largest power of two below it, recursively.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/stream.h"
#include "parallel/comm/pulse.h"

namespace skein::comm {

// Not thread-safe: one thread at a time, except Abort.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string_view name() const = 0;  // of the group, for messages: "tp of replica 0"

  // data[count] becomes the sum over all ranks, in place.
  virtual absl::Status AllReduce(absl::Span<float> data, Stream stream = {}) = 0;
  // out[size * in.size()]: the ranks' inputs in rank order. Every rank gives the same size.
  virtual absl::Status AllGather(absl::Span<const std::byte> in, absl::Span<std::byte> out,
                                 Stream stream = {}) = 0;
  // out[count / size]: this rank's part of the sum over all ranks of in[count].
  virtual absl::Status ReduceScatter(absl::Span<const float> in, absl::Span<float> out,
                                     Stream stream = {}) = 0;
  virtual absl::Status Broadcast(absl::Span<std::byte> data, int root, Stream stream = {}) = 0;
  // Send copies `data` and returns, unless more than a few messages to `to` are still on their way
  // (16 MiB on the CPU): then it waits for the receiver. Messages between two ranks arrive in
  // order; a receiver's size must be the sender's.
  virtual absl::Status Send(absl::Span<const std::byte> data, int to, Stream stream = {}) = 0;
  virtual absl::Status Receive(absl::Span<std::byte> data, int from, Stream stream = {}) = 0;
  virtual absl::Status Barrier(Stream stream = {}) = 0;
  // Some transports deliver a large message only with the sender's help. Both do nothing where
  // messages need none.
  //
  // Helps what was sent on, and waits for nothing: a rank that computes calls it now and then, so
  // that its receivers need not wait until it is done.
  virtual absl::Status Progress() { return absl::OkStatus(); }
  // Returns when what was sent to `to` needs this rank no more: for a rank that is about to sleep.
  virtual absl::Status Flush(int /*to*/) { return absl::OkStatus(); }

  // Makes the call in flight and all later ones fail with `why`. Any thread may call it.
  virtual void Abort(absl::Status why) = 0;
  // How long one call may take; InfiniteDuration by default.
  virtual void set_timeout(absl::Duration timeout) = 0;
  // Beaten while a call waits, by groups that poll for what they wait for: a rank whose pulse
  // stands still inside a call is stuck there, while one that waits for others beats. Outlives the
  // group.
  virtual void set_pulse(Pulse* /*pulse*/) {}
  // Collective calls entered so far.
  virtual int64_t calls() const = 0;
};

}  // namespace skein::comm
