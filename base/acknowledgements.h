// Whether what was sent is taken up on the other side.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"

namespace skein {

// Looks now and then at two counts: messages sent, and those that the other side says it has taken
// up. Not thread-safe.
class Acknowledgements {
 public:
  // How long some message has waited, where that is longer than `patience`, reckoned from the look
  // that first saw it: call it several times per `patience`.
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
  uint64_t awaited_ = 0;  // so many are to be taken up
  absl::Time since_;      // they were known to be sent
};

}  // namespace skein
