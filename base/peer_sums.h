// Sums over devices of one host, each of which writes into the others' memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/stream.h"
#include "base/view.h"

namespace skein {

// What kernels take that make sums themselves. The back end's own.
struct PeerMemory;

// One rank's end of a group. One thread at a time, except Abort.
class PeerSums {
 public:
  // Whom a sum has waited for longer than sums take.
  struct Wait {
    std::vector<int> ranks;
    std::string sum;  // "sum 3 of step 7 (8192 bytes of BF16, order 1a2b3c4d)"
  };
  // A rank that makes another sum than this one.
  struct Disagreement {
    int rank = 0;
    std::string expected;  // as Wait::sum: this rank's
    std::string seen;      // the other one's
  };

  enum class Shots : uint8_t {
    kBySize,
    kOne,  // each rank gets all data of all others
    kTwo,  // each rank sums a part of the data, and sends the sum to all others
  };

  virtual ~PeerSums() = default;

  // What the other ranks' processes open this one's memory with.
  virtual std::string handle() const = 0;
  // Opens the memory of all ranks, whose handles are by rank. FailedPrecondition, with what is
  // lacking, where their devices or processes cannot reach each other's.
  virtual absl::Status Open(absl::Span<const std::string> handles) = 0;

  // Closes the others' memory, which must not be gone before. No stream has sums any more.
  virtual void Close() = 0;

  // The most bytes of a sum, and of one that may take one shot.
  virtual int64_t most_bytes() const = 0;
  virtual int64_t most_one_shot_bytes() const = 0;
  // By size sums take one shot up to so many bytes from now on, and two beyond; the same on all
  // ranks. At first it is what arithmetic gives.
  virtual void set_one_shot_bytes(int64_t bytes) = 0;
  // Whether Sum takes such a view: F32, BF16 or F16, to most_bytes(), a multiple of 8, aligned so.
  virtual bool Takes(const View& data) const = 0;
  // Queues that `data` becomes the sum of all ranks', in place, joined as a binary tree of floats.
  // Behind Open; every rank gives the same size, in the same order. A stream that is being captured
  // takes it, too. InvalidArgument for more data than one shot takes, where it is asked for.
  virtual absl::Status Sum(View data, Stream stream, Shots shots = Shots::kBySize) = 0;
  // For benchmarks: copies all of this rank's memory over the next rank's, before the first sum,
  // while both hold the same.
  virtual int64_t memory_bytes() const = 0;
  virtual absl::Status CopyToNext(Stream stream) = 0;
  // Sums that `stream` gets from now on are those of this step, of which ranks have to have the
  // same order; `order` is its digest. Costs the device some 2 us.
  virtual absl::Status BeginStep(int64_t step, uint32_t order, Stream stream) = 0;

  // For kernels that make such a sum with more on the way, in the place of Sum.
  virtual const PeerMemory& memory() const = 0;

  // What devices have told so far, without waiting for them. After a disagreement nobody is waited
  // for any more, and data are void.
  virtual std::optional<Wait> Waiting() const = 0;
  virtual std::optional<Disagreement> Disagrees() const = 0;
  // Ends the waiting of sums that streams have or get; their data are void. Any thread.
  virtual void Abort() = 0;
};

}  // namespace skein
