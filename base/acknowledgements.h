// Finds messages that were sent and that the other side does not take up.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"

namespace skein {

// Compares two counts now and then: messages sent, and messages that the other side says it has
// taken up. Not thread-safe.
class Acknowledgements {
 public:
  // Returns how long a message has waited to be taken up, if that is longer than `patience`;
  // otherwise nothing. The wait counts from the call that first saw the message, so call it several
  // times per `patience`.
  std::optional<absl::Duration> Overdue(uint64_t sent, uint64_t taken, absl::Time now,
                                        absl::Duration patience) {
    if (awaited_ <= taken) {
      awaited_ = sent;
      since_ = now;
    }
    if (awaited_ <= taken || now - since_ <= patience) return std::nullopt;
    return now - since_;
  }
  // Time that passed so far does not count.
  void Restart(absl::Time now) { since_ = now; }

 private:
  uint64_t awaited_ = 0;  // waits until so many are taken up
  absl::Time since_;      // since they were known to be sent
};

}  // namespace skein
