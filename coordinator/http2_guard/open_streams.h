// The streams of one connection that a client has begun and that neither end has ended.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_set.h"

namespace skein::coordinator {

class OpenStreams {
 public:
  size_t size() const { return open_.size(); }
  // The highest number that was begun; numbers of streams only rise.
  uint32_t last() const { return last_; }
  // Of streams that were ended before their answer was: each may leave work behind in gRPC that
  // nobody counts any more. Whoever owns the connection pays for them, from a ResetBudget.
  int64_t unpaid_resets() const { return unpaid_resets_; }

  // As long as clients that are gone owe for their streams, each that is begun beside another one
  // is paid for, too.
  void ChargeForBegun(bool charge) { charge_for_begun_ = charge; }
  void Owe() { ++unpaid_resets_; }
  void Begin(uint32_t stream) {
    open_.insert(stream);
    last_ = stream;
    if (charge_for_begun_ && open_.size() > 1) Owe();
  }
  // Its answer is complete.
  void End(uint32_t stream) { open_.erase(stream); }
  // Ended before its time.
  void Reset(uint32_t stream) {
    if (open_.erase(stream) > 0) Owe();
  }
  void PayForReset() { --unpaid_resets_; }

 private:
  absl::flat_hash_set<uint32_t> open_;
  uint32_t last_ = 0;
  int64_t unpaid_resets_ = 0;
  bool charge_for_begun_ = false;
};

}  // namespace skein::coordinator
