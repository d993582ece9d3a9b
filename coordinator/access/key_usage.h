// What each key has used lately, held against its limits.
//
// A minute slides: requests and tokens are counted by the second, and count until 60 to 61 seconds
// have passed, so that no 60 seconds see more than the limit. Tokens of answers are counted as they
// come: a key may go over its limit by what it has under way, and waits until that has passed.
//
// Seconds are those of the clock's time of day, since counts outlive the process
// (key_usage_file.h). What was counted in seconds to come is forgotten when the clock is set back.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "serving/keys/key_file.h"

namespace skein::coordinator {

// Why a key must wait.
struct Excess {
  std::string limit;  // "requests-per-minute"
  int64_t allowed = 0;
  int64_t wanted = 0;          // with what is asked for; more than allowed
  absl::Duration again_after;  // infinite: it is more than a whole minute allows
};

// A key's counts of one second.
struct SecondOfUse {
  std::string name;  // of the key
  int64_t second = 0;
  int64_t requests = 0;
  int64_t tokens = 0;

  bool operator==(const SecondOfUse&) const = default;
};

// Thread-safe. The clock outlives it. A call costs a look at 61 numbers at most; memory is bounded
// by the keys that were used.
class KeyUsage {
 public:
  explicit KeyUsage(const Clock* clock) : clock_(clock) {}

  // Takes a request in, which then has a stream until End. Nothing is counted where a limit is in
  // the way; the one that lasts longest is told.
  std::optional<Excess> Begin(const std::string& name, const serving::KeyLimits& limits);
  // Counts a prompt's tokens, unless they are more than the limit leaves.
  std::optional<Excess> AddPrompt(const std::string& name, const serving::KeyLimits& limits,
                                  int64_t tokens);
  void AddAnswer(const std::string& name, int64_t tokens);
  void End(const std::string& name);

  // Counts that have changed since the last call; nothing else may be lost. Forgets what is old.
  std::vector<SecondOfUse> TakeChanges();
  // Counts of an earlier process. Those that are too old, or of times to come, are passed over.
  void Restore(const std::vector<SecondOfUse>& seconds);
  // The second before which nothing counts any more.
  int64_t FirstSecond() const;

 private:
  struct Counts {
    int64_t requests = 0;
    int64_t tokens = 0;
  };
  struct Key {
    std::map<int64_t, Counts> seconds;  // that count
    int64_t streams = 0;
  };

  // Of this key, without what counts no more.
  Key& Current(const std::string& name, int64_t now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Counts& Changed(Key& key, const std::string& name, int64_t now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<Excess> Check(const Key& key, const char* limit, std::optional<int64_t> allowed,
                              int64_t more, int64_t Counts::* count) const;

  const Clock* const clock_;
  mutable Mutex mutex_;
  std::map<std::string, Key> keys_ ABSL_GUARDED_BY(mutex_);
  std::set<std::pair<std::string, int64_t>> changed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace skein::coordinator
