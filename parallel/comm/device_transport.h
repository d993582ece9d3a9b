// Carries what a group's ranks exchange from the memory of one's device to another's.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "base/peer_sums.h"
#include "base/stream.h"
#include "base/view.h"
#include "parallel/comm/call.h"
#include "parallel/comm/patience.h"

namespace skein::comm {

// A Communicator gives it the calls whose views lie on a device. Those return when `stream` has
// what they take, not when it is done, and so know no lost peer and no deadline of their own. One
// thread at a time, except Abort.
class DeviceTransport {
 public:
  virtual ~DeviceTransport() = default;

  // Sums that `stream` gets from now on are of this step, and of an order of this digest, which is
  // every rank's: a transport may tell by it ranks that make unlike sums.
  virtual absl::Status BeginStep(int64_t /*step*/, uint32_t /*order*/, Stream /*stream*/) {
    return absl::OkStatus();
  }
  // As Communicator's. Errors name the ranks that take part, and their hosts. A stream that is
  // being captured takes them, too.
  virtual absl::Status AllReduce(const Call& call, View data, Stream stream,
                                 const Patience& patience) = 0;
  // Not null: AllReduce of such a view goes over this memory, and a kernel of the back end may make
  // the sum in its place.
  virtual const PeerMemory* PeersOf(const View& /*data*/) const { return nullptr; }
  virtual absl::Status Send(const Call& call, ConstView data, Stream stream,
                            const Patience& patience) = 0;
  virtual absl::Status Receive(const Call& call, View data, Stream stream,
                               const Patience& patience) = 0;

  // Returns the first error of what streams have, such as a lost peer, or one that makes another
  // sum. Does not wait.
  virtual absl::Status Check() = 0;
  // Returns the other ranks that a call waits for, with their hosts, "rank 1 on b, rank 2 on b",
  // and in which of several sums where it knows.
  virtual std::string Others(const Call& call) const = 0;
  // See Communicator::SumsAsTree.
  virtual bool SumsAsTree() const = 0;
  // Ends what streams have, so that no kernel waits on, and makes later calls fail. Any thread,
  // maybe several times.
  virtual void Abort() = 0;
};

}  // namespace skein::comm
